package main

import (
	"fmt"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
)

// environment describes the machine, the disk and the versions on which the figures depend.
type environment struct {
	Machine benchmark.Environment `json:"machine"`
	SyncP50 float64               `json:"sync_p50"` // the median duration of a sync in ms
	SyncP99 float64               `json:"sync_p99"`
}

// newEnvironment measures the disk that contains dir with a number of syncs.
func newEnvironment(dir string, syncs int) (environment, error) {
	e := environment{Machine: benchmark.NewEnvironment(
		"github.com/hashicorp/raft", "github.com/hashicorp/raft-wal", "go.etcd.io/etcd/server/v3", "go.etcd.io/raft/v3",
	)}
	var durations []float64
	err := withTempDir(dir, func(dir string) (err error) {
		durations, err = measureSyncs(dir, syncs)
		return err
	})
	if err != nil {
		return e, fmt.Errorf("measure the disk: %w", err)
	}
	e.SyncP50, e.SyncP99 = benchmark.Median(durations), benchmark.Quantile(durations, 0.99)
	return e, nil
}

func (e environment) String() string {
	return fmt.Sprintf("%s; %d bytes written and synced in %.2f ms (p99 %.2f ms).", e.Machine, updateSize, e.SyncP50, e.SyncP99)
}
