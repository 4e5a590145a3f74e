module github.com/go-leaderelection/leaderelection/adapters/changefeed/mysql

go 1.25.0

require (
	github.com/go-leaderelection/leaderelection v0.1.0
	github.com/go-sql-driver/mysql v1.8.0
	github.com/stretchr/testify v1.10.0
	go.uber.org/goleak v1.3.0
)

require (
	filippo.io/edwards25519 v1.1.1 // indirect
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/go-zookeeper/zk v1.0.4 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)
