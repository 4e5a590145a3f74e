package raftlog

import "github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"

// OnDisk has the node keep its data on another disk than that of Dir, in files of a log of
// that size.
func (c Config) OnDisk(fs disk.FS, segment int64) Config {
	c.fs, c.segment = fs, segment
	return c
}
