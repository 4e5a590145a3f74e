// Package traptest plays the known traps of elections, and the defects of the
// library that this one succeeds, as deterministic tests: on the embedded
// server, in fake time. What a real ensemble does is in integrationtest.
package traptest

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const (
	node    = "/election"
	timeout = 4 * time.Second // of sessions
)

// world is a test in a bubble: servers and clients on fake time.
type world struct {
	*testing.T
	ensemble *zktest.Ensemble
	srv      *zktest.Server // its first
	operator *zk.Conn       // a client beside the candidates
	stood    int            // see stand
	history  history
	options  []leaderelection.Option // of all candidates

	candidates []*candidate
}

// play runs f in a bubble with as many servers, and the election node.
func play(t *testing.T, servers int, f func(w *world), options ...zktest.Option) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) }) // what cannot leave ends with its client
		w := &world{T: t, ensemble: zktest.Cluster(t, servers, options...)}
		t.Cleanup(w.leave)
		t.Cleanup(w.heal)
		w.srv = w.ensemble.Server(0)
		w.operator = w.connect()
		_, err := w.operator.Create(node, nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		f(w)
		w.history.check(w)
	})
}

// connect opens a session, at server 0 first where there are several.
func (w *world) connect(options ...func(*zk.Conn)) *zk.Conn {
	return w.connectTo(0, options...)
}

func (w *world) connectTo(server int, options ...func(*zk.Conn)) *zk.Conn {
	options = append(options, zk.WithMaxBufferSize(64<<10)) // by default 1.5 MB, cleared each time
	conn, _, err := w.ensemble.ConnectFrom(server, timeout, options...)
	require.NoError(w, err)
	w.pass(0)
	require.Equal(w, zk.StateHasSession, conn.State())
	return conn
}

// pass lets time pass, and then what happens at that instant happen.
func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// children are those of the election node, as the server keeps them.
func (w *world) children() (names []string) {
	for _, path := range strings.Split(w.srv.Tree(), "\n") {
		if strings.HasPrefix(path, "    ") {
			names = append(names, strings.TrimSpace(path))
		}
	}
	return names
}

// told is a status and when it came.
type told struct {
	leaderelection.Status
	at time.Time
}

// candidate is a program that reads each status at once.
type candidate struct {
	*leaderelection.Election
	w    *world
	conn *zk.Conn

	mu       sync.Mutex
	statuses []told
	closed   bool
	err      error // what ElectLeader returned
	returned bool
}

// enlist has a candidate take part over conn and lets it find its place.
func (w *world) enlist(conn *zk.Conn, options ...leaderelection.Option) *candidate {
	c := w.start(conn, options...)
	w.pass(0)
	return c
}

// start has a candidate take part, and does not wait.
func (w *world) start(conn *zk.Conn, options ...leaderelection.Option) *candidate {
	c := w.candidateAt(node, conn, options...)
	c.begin()
	return c
}

// leave has all candidates leave. Requests that are under way while a client is
// closed can hang it for ever: it has up to three answers for a channel for two.
func (w *world) leave() {
	for _, c := range w.candidates {
		go c.Resign()
	}
	time.Sleep(timeout)
}

// candidateAt makes a candidate that does not take part yet.
func (w *world) candidateAt(node string, conn *zk.Conn, options ...leaderelection.Option) *candidate {
	options = append([]leaderelection.Option{leaderelection.WithSessionTimeout(timeout)}, slices.Concat(w.options, options)...)
	e, err := leaderelection.NewElection(conn, node, options...)
	require.NoError(w, err)
	return w.register(e, conn)
}

func (w *world) register(e *leaderelection.Election, conn *zk.Conn) *candidate {
	c := &candidate{Election: e, w: w, conn: conn}
	w.candidates = append(w.candidates, c)
	return c
}

// run has a candidate that was made take part.
func (w *world) run(e *leaderelection.Election, conn *zk.Conn) *candidate {
	c := w.register(e, conn)
	c.begin()
	return c
}

// begin has the candidate take part, and does not wait.
func (c *candidate) begin() {
	go func() {
		err := c.ElectLeader()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.err, c.returned = err, true
	}()
	go func() {
		for s := range c.Status() {
			c.mu.Lock()
			c.statuses = append(c.statuses, told{s, time.Now()})
			c.mu.Unlock()
			c.w.history.note(s)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.closed = true
	}()
}

// all are the statuses so far.
func (c *candidate) all() []told {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]told(nil), c.statuses...)
}

// last is the newest status.
func (c *candidate) last() told {
	all := c.all()
	require.NotEmpty(c.w, all, "no status yet")
	return all[len(all)-1]
}

// leads asserts that the candidate leads at this instant.
func (c *candidate) leads() *leaderelection.Leadership {
	c.w.Helper()
	s := c.last()
	require.Equal(c.w, leaderelection.Leader, s.Role, "%v", s.Status)
	require.NoError(c.w, s.Leadership.Err())
	return s.Leadership
}

// follows asserts that the candidate stands behind other at this instant.
func (c *candidate) follows(other *candidate) {
	c.w.Helper()
	s := c.last()
	require.Equal(c.w, leaderelection.Follower, s.Role, "%v", s.Status)
	require.Equal(c.w, other.ID(), s.NowFollowing)
}

// over asserts that the candidacy is over, everything closed, and returns what
// ended it.
func (c *candidate) over() error {
	c.w.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	require.True(c.w, c.closed, "the status channel is open")
	require.True(c.w, c.returned, "ElectLeader has not returned")
	if c.err != nil {
		require.ErrorIs(c.w, c.statuses[len(c.statuses)-1].Err, c.err)
	}
	return c.err
}
