package main

import (
	"fmt"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
)

// environment describes the machine, the server and the versions of software on which the figures of a run depend.
type environment struct {
	Machine   benchmark.Environment `json:"machine"`
	ZooKeeper string                `json:"zookeeper"` // the version of the server
	Server    string                `json:"server"`    // how the server runs: as a process or in a container
}

func newEnvironment() environment {
	return environment{Machine: benchmark.NewEnvironment("github.com/go-zookeeper/zk")}
}

func (e environment) String() string {
	return fmt.Sprintf("%s; ZooKeeper %s (%s, one server)", e.Machine, e.ZooKeeper, e.Server)
}
