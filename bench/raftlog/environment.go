package main

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/go-leaderelection/leaderelection/bench/internal/machine"
	"github.com/go-leaderelection/leaderelection/bench/internal/stats"
)

// facts are what the figures depend on.
type facts struct {
	CPUs       int               `json:"cpus"`
	Platform   string            `json:"platform"`
	Go         string            `json:"go"`
	Versions   map[string]string `json:"versions"`
	SyncP50    float64           `json:"sync_p50"` // ms
	SyncP99    float64           `json:"sync_p99"`
	LoadBefore string            `json:"load_before"`
	LoadAfter  string            `json:"load_after"`
}

// modules are what the contestants stand on, as the report names them.
var modules = []string{"github.com/hashicorp/raft", "github.com/hashicorp/raft-wal", "go.etcd.io/etcd/server/v3", "go.etcd.io/raft/v3"}

// newFacts measures the disk under dir.
func newFacts(dir string, syncs int) (facts, error) {
	f := facts{
		CPUs: runtime.GOMAXPROCS(0), Platform: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(),
		Versions: map[string]string{}, LoadBefore: machine.Load(),
	}
	for _, m := range modules {
		if v := machine.ModuleVersion(m); v != "" {
			f.Versions[m] = v
		}
	}
	var times []float64
	err := temporary(dir, func(dir string) (err error) {
		times, err = syncTimes(dir, syncs)
		return err
	})
	if err != nil {
		return f, fmt.Errorf("measure the disk: %w", err)
	}
	f.SyncP50, f.SyncP99 = stats.Median(times), stats.Quantile(times, 0.99)
	return f, nil
}

func (f facts) String() string {
	parts := []string{
		fmt.Sprintf("%d CPUs, %s, %s", f.CPUs, f.Platform, f.Go),
		fmt.Sprintf("%d bytes written and synced in %.2f ms (p99 %.2f ms)", updateSize, f.SyncP50, f.SyncP99),
	}
	for _, m := range modules {
		if v := f.Versions[m]; v != "" {
			parts = append(parts, m+" "+v)
		}
	}
	return strings.Join(parts, "; ") + "."
}
