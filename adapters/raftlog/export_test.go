package raftlog

import "github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"

// OnDisk has the node keep its data on another disk than that of Dir.
func (c Config) OnDisk(fs disk.FS) Config {
	c.fs = fs
	return c
}
