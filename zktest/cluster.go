package zktest

import (
	"time"

	"github.com/go-zookeeper/zk"
)

// Ensemble is several servers over one tree. Its methods may be called from any
// goroutine.
type Ensemble struct {
	e    *ensemble
	next int
}

// Cluster starts an ensemble of n servers that is closed when the test ends. It
// is for what clients see of one: lists of servers, fail-over, partitions. The
// servers do not vote or replicate; a server that is cut off ([Server.Partition]),
// stopped or paused is left behind.
//
// As in a real ensemble the leader expires sessions, and a follower reports its clients'
// packets only with the answer to the leader's next ping. Pings are half a tick apart. If
// the follower is cut off, a session can therefore end half a tick before its timeout has
// passed since the last packet that was answered.
//
// Without a majority nobody can write. If that is because others are cut off or
// paused, a server goes on to answer reads from the old state, see [WithSyncLimit];
// if half of them or more are stopped, it notices at once, and sends its clients
// away until there is a majority again. No session ends meanwhile.
//
// When the leader is lost, or the majority comes back, clients are disconnected,
// sessions get their whole timeout again and transaction numbers start a new
// epoch, as after a real election; there is no pause for the vote.
func Cluster(t TB, n int, opts ...Option) *Ensemble {
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

// NewEnsemble starts an ensemble outside of a test. Close it when done.
func NewEnsemble(n int, opts ...Option) (*Ensemble, error) {
	e, err := newEnsemble(max(n, 1), opts)
	if err != nil {
		return nil, err
	}
	return &Ensemble{e: e}, nil
}

// Close is [Server.Close] for all servers.
func (c *Ensemble) Close() { c.e.close() }

// Len is the number of servers.
func (c *Ensemble) Len() int { return len(c.e.servers) }

// Server returns one of the servers, from 0.
func (c *Ensemble) Server(i int) *Server { return c.e.servers[i] }

// Leader returns the server that leads, or that did when the majority was lost.
func (c *Ensemble) Leader() *Server {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	return c.e.servers[c.e.leader]
}

// Addrs are the TCP addresses of the servers; see [Server.Addr].
func (c *Ensemble) Addrs() []string {
	out := make([]string, len(c.e.servers))
	for i, s := range c.e.servers {
		out[i] = s.Addr()
	}
	return out
}

// Names are the names of the servers for [Ensemble.Dialer].
func (c *Ensemble) Names() []string {
	out := make([]string, len(c.e.servers))
	for i, s := range c.e.servers {
		out[i] = s.Name()
	}
	return out
}

// Dialer makes in-memory connections to the servers by their names.
func (c *Ensemble) Dialer() zk.Dialer { return c.e.dial }

// Connect connects a client that knows all servers, over the in-memory
// connections. The first client begins with server 0, the second with server 1
// and so on. See [Server.Connect].
func (c *Ensemble) Connect(timeout time.Duration, opts ...func(*zk.Conn)) (*zk.Conn, <-chan zk.Event, error) {
	c.e.mu.Lock()
	first := c.next
	c.next++
	c.e.mu.Unlock()
	return c.ConnectFrom(first, timeout, opts...)
}

// ConnectFrom is [Ensemble.Connect] for a client that begins with server i, and
// goes on with i+1, i+2 and so on, round the list.
func (c *Ensemble) ConnectFrom(i int, timeout time.Duration, opts ...func(*zk.Conn)) (*zk.Conn, <-chan zk.Event, error) {
	n := len(c.e.servers)
	order := make([]*Server, n)
	for k := range order {
		order[k] = c.e.servers[(i+k)%n]
	}
	return c.e.connect(order, timeout, opts)
}
