package raftlog

import (
	"context"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// OnDisk returns the configuration of a node that stores its data on the given disk instead of Dir.
func (c Config) OnDisk(fs disk.FS) Config {
	c.fs = fs
	return c
}

// InFiles returns the configuration of a node whose log consists of files of the given size.
func (c Config) InFiles(size int64) Config {
	c.segment = size
	return c
}

// ProposeGuarded proposes an update that the log applies only during the leadership with the given token.
func ProposeGuarded(ctx context.Context, n *Node, election string, token int64, id api.RequestID, data []byte) (uint64, error) {
	return n.proposeGuarded(ctx, replica.Guard{Election: election, Token: uint64(token)}, id, data)
}

// ClientAddress exports clientAddress to the tests.
var ClientAddress = clientAddress

// ChangeError returns the error that DeleteElection returns if the log returns err.
func ChangeError(ctx context.Context, n *Node, err error) error {
	return changeError(ctx, n, replica.Op{Do: replica.End, Election: "e"}, err)
}

// BlockLoop blocks the node's loop until release is called.
func (n *Node) BlockLoop() (release func()) {
	blocked, free, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		_ = n.callLoop(context.Background(), func(*core.Core) { close(blocked); <-free })
	}()
	<-blocked
	return func() { close(free); <-done }
}

// HandleRefusal calls handleRefusal, as if the peer with the given ID had refused a connection.
func (n *Node) HandleRefusal(id string, refused *link.RefusedError) { n.handleRefusal(id, refused) }

// OnDisk returns the configuration of a call of RecoverOffline that uses the given disk instead of Dir.
func (c RecoverConfig) OnDisk(fs disk.FS) RecoverConfig {
	c.fs = fs
	return c
}
