package main

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/go-leaderelection/leaderelection/bench/internal/machine"
)

// environment is what the figures depend on.
type environment struct {
	CPUs       int               `json:"cpus"`
	Platform   string            `json:"platform"`
	ZooKeeper  string            `json:"zookeeper"`
	Server     string            `json:"server"` // what runs it
	Go         string            `json:"go"`
	Versions   map[string]string `json:"versions"` // of what the contestants stand on
	LoadBefore string            `json:"load_before"`
	LoadAfter  string            `json:"load_after"`
}

func (e environment) String() string {
	parts := []string{
		fmt.Sprintf("%d CPUs, %s", e.CPUs, e.Platform),
		fmt.Sprintf("ZooKeeper %s (%s, one server)", e.ZooKeeper, e.Server),
		e.Go,
	}
	for _, name := range []string{"go-zookeeper", kazooName, curatorName} {
		if v := e.Versions[name]; v != "" {
			parts = append(parts, name+" "+v)
		}
	}
	return strings.Join(parts, "; ")
}

func newEnvironment() environment {
	return environment{
		CPUs: runtime.GOMAXPROCS(0), Platform: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(),
		Versions:   map[string]string{"go-zookeeper": machine.ModuleVersion("github.com/go-zookeeper/zk")},
		LoadBefore: machine.Load(),
	}
}
