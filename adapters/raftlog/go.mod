module github.com/go-leaderelection/leaderelection/adapters/raftlog

go 1.26.0

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/go-leaderelection/leaderelection v0.1.0
	github.com/stretchr/testify v1.12.1
	go.etcd.io/raft/v3 v3.7.0
	go.uber.org/goleak v1.3.0
	golang.org/x/sys v0.49.0
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/go-zookeeper/zk v1.0.4 // indirect
	go.yaml.in/yaml/v3 v3.0.6 // indirect
)
