// The modules that the demo needs: make demo uses this file in place of go.mod, so that a first
// run downloads one module. TestDemoModules keeps it up to date.
module github.com/go-leaderelection/leaderelection

go 1.26.0

require github.com/go-zookeeper/zk v1.0.4
