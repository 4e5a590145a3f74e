package raftlog

import (
	"context"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// OnDisk has the node keep its data on another disk than that of Dir.
func (c Config) OnDisk(fs disk.FS) Config {
	c.fs = fs
	return c
}

// InFiles has the log's files be of that size.
func (c Config) InFiles(size int64) Config {
	c.segment = size
	return c
}

// ProposeUnder proposes as the candidate that was the first with that token.
func ProposeUnder(ctx context.Context, n *Node, election string, token int64, id requestid.ID, data []byte) (uint64, error) {
	return n.proposeUnder(ctx, entry.Guard{Election: election, Token: uint64(token)}, id, data)
}

// Amending is the error of the end of an election of which the log says err.
func Amending(ctx context.Context, n *Node, err error) error {
	return amending(ctx, n, entry.Op{Do: entry.End, Election: "e"}, err)
}

// HoldLoop has the node's loop stand until goOn is called.
func (n *Node) HoldLoop() (goOn func()) {
	held, free, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		_ = n.do(context.Background(), func(*core.Core) { close(held); <-free })
	}()
	<-held
	return func() { close(free); <-done }
}

// RefusedBy has another peer refuse this one.
func (n *Node) RefusedBy(id string, refused *link.RefusedError) { n.refused(id, refused) }

// OnDisk has the peer's files be on another disk than that of Dir.
func (c RecoverConfig) OnDisk(fs disk.FS) RecoverConfig {
	c.fs = fs
	return c
}
