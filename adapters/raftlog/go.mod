module github.com/go-leaderelection/leaderelection/adapters/raftlog

go 1.26.0

require (
	github.com/anishathalye/porcupine v1.0.0
	github.com/go-leaderelection/leaderelection v0.1.0
	github.com/stretchr/testify v1.11.1
	go.etcd.io/raft/v3 v3.7.0
	go.uber.org/goleak v1.3.0
	golang.org/x/sys v0.20.0
	google.golang.org/protobuf v1.36.11
)

require (
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/go-zookeeper/zk v1.0.4 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)
