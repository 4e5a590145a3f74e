package raftlog_test

// A candidate that tests watch.

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
)

type candidate struct {
	*raftlog.Election
	mu     sync.Mutex
	roles  []leaderelection.Role
	tokens []int64
	ended  chan struct{}
	err    error // of ElectLeader; once ended is closed
}

// stand has a peer stand in an election until the test is over.
func stand(t testing.TB, n *raftlog.Node, name string, opts ...raftlog.Option) *candidate {
	t.Helper()
	e, err := raftlog.NewElection(n, name, opts...)
	require.NoError(t, err)
	c := &candidate{Election: e, ended: make(chan struct{})}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for s := range e.Status() {
			c.mu.Lock()
			c.roles = append(c.roles, s.Role)
			if s.Leadership != nil {
				c.tokens = append(c.tokens, s.Leadership.Token())
			}
			c.mu.Unlock()
		}
	}()
	go func() {
		c.err = e.ElectLeader()
		<-watched
		close(c.ended)
	}()
	return c
}

func (c *candidate) leads() bool {
	l := c.Current().Leadership
	return l != nil && l.Err() == nil
}

// awaitLeader waits until the candidate leads, and returns its token.
func (c *candidate) awaitLeader(t testing.TB) int64 {
	t.Helper()
	await(t, "candidate leads", c.leads)
	return c.Current().Leadership.Token()
}

func (c *candidate) told() []leaderelection.Role {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]leaderelection.Role(nil), c.roles...)
}
