package zktest

import (
	"time"

	"github.com/go-zookeeper/zk"
)

// Ensemble is a set of servers that share one tree. Its methods are safe for concurrent
// use.
type Ensemble struct {
	e    *ensemble
	next int
}

// StartEnsemble starts an ensemble of n servers and closes it when the test ends. It is for
// tests of what clients observe of an ensemble: lists of servers, fail-over, partitions.
// The servers do not vote or replicate. A server that is partitioned
// ([Server.Partition]), stopped or paused falls behind.
//
// As in a real ensemble, the leader expires sessions, and a follower reports packets of
// its clients only in the answer to the leader's next ping. Pings are half a tick apart.
// If a follower is partitioned, a session can therefore expire half a tick earlier than
// its timeout after the last packet that was answered.
//
// Without a majority no client can write. If the other servers are partitioned or paused,
// a server continues to answer reads from the old state; see [WithSyncLimit]. If half of
// the servers or more are stopped, the remaining servers detect it immediately, and
// disconnect their clients until there is a majority again. No session expires while
// there is no majority.
//
// If the leader is lost, or the majority returns, clients are disconnected, sessions
// receive their whole timeout again, and zxids start a new epoch, as after a real
// election. The election itself takes no time.
func StartEnsemble(t TB, n int, opts ...Option) *Ensemble {
	t.Helper()
	c, err := NewEnsemble(n, opts...)
	if err != nil {
		t.Fatalf("%v", err)
		return nil
	}
	for _, s := range c.e.servers {
		s.t = t
	}
	t.Cleanup(c.Close)
	return c
}

// NewEnsemble starts an ensemble outside of a test. The caller must close it.
func NewEnsemble(n int, opts ...Option) (*Ensemble, error) {
	e, err := newEnsemble(max(n, 1), opts)
	if err != nil {
		return nil, err
	}
	return &Ensemble{e: e}, nil
}

// Close closes all servers as [Server.Close] does.
func (c *Ensemble) Close() { c.e.closeServers() }

// Len returns the number of servers.
func (c *Ensemble) Len() int { return len(c.e.servers) }

// Server returns server i, counted from 0.
func (c *Ensemble) Server(i int) *Server { return c.e.servers[i] }

// Leader returns the server that leads the ensemble. Without a majority, it returns the
// last leader.
func (c *Ensemble) Leader() *Server {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	return c.e.servers[c.e.leader]
}

// Addrs returns the TCP addresses of the servers; see [Server.Addr].
func (c *Ensemble) Addrs() []string {
	out := make([]string, len(c.e.servers))
	for i, s := range c.e.servers {
		out[i] = s.Addr()
	}
	return out
}

// Names returns the names of the servers for [Ensemble.Dialer].
func (c *Ensemble) Names() []string {
	out := make([]string, len(c.e.servers))
	for i, s := range c.e.servers {
		out[i] = s.Name()
	}
	return out
}

// Dialer returns a dialer that makes in-memory connections to the servers by their names.
func (c *Ensemble) Dialer() zk.Dialer { return c.e.dial }

// Connect connects a client that knows all servers, through in-memory connections. The
// first client connects to server 0 first, the second client to server 1, and so on. See
// [Server.Connect].
func (c *Ensemble) Connect(timeout time.Duration, opts ...func(*zk.Conn)) (*zk.Conn, <-chan zk.Event, error) {
	c.e.mu.Lock()
	first := c.next
	c.next++
	c.e.mu.Unlock()
	return c.ConnectFrom(first, timeout, opts...)
}

// ConnectFrom connects a client like [Ensemble.Connect], but the client connects to server i first, and
// then tries i+1, i+2 and so on, cyclically.
func (c *Ensemble) ConnectFrom(i int, timeout time.Duration, opts ...func(*zk.Conn)) (*zk.Conn, <-chan zk.Event, error) {
	n := len(c.e.servers)
	order := make([]*Server, n)
	for k := range order {
		order[k] = c.e.servers[(i+k)%n]
	}
	return c.e.connectClient(order, timeout, opts)
}
