package lock

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const (
	semPath  = "/app/sem"
	semBelow = semPath + "/*"
)

// runSemaphoreTest runs f in a bubble with one server and clients on fake time.
func runSemaphoreTest(t *testing.T, f func(w *harness)) {
	synctest.Test(t, func(t *testing.T) {
		// Contenders that a test leaves behind end with the server; time passes only
		// while the test runs.
		t.Cleanup(func() { time.Sleep(10 * timeout) })
		w := newHarness(t, 1)
		w.create("/app")
		f(w)
	})
}

func semOptions(opts []Option) []Option {
	return append([]Option{recipes.WithSessionTimeout(timeout)}, opts...)
}

func (w *harness) semaphore(conn *zk.Conn, limit int, opts ...Option) *Semaphore {
	s, err := NewSemaphore(conn, semPath, limit, semOptions(opts)...)
	require.NoError(w, err)
	return s
}

// contend opens a session, requests n leases, and waits until the contender is in the queue.
func (w *harness) contend(limit, n int) *call {
	return w.acquire(w.semaphore(w.connect(), limit), n)
}

// acquire requests n leases, and waits until the contender is in the queue.
func (w *harness) acquire(s *Semaphore, n int) *call {
	c := w.startAcquire(s, n)
	synctest.Wait()
	return c
}

// startAcquire requests n leases and does not wait.
func (w *harness) startAcquire(s *Semaphore, n int) *call {
	return w.startCall(s.setup.Conn, func(ctx context.Context) (*Hold, error) { return s.Acquire(ctx, n) })
}

// fails asserts that Acquire has returned an error.
func (c *call) fails(want error) {
	c.w.Helper()
	require.ErrorIs(c.w, c.failed(), want)
}

// session returns the session of the contender's connection.
func (c *call) session() int64 { return c.conn.SessionID() }

// path returns the path of the only znode of the contender's session.
func (c *call) path() string {
	c.w.Helper()
	for _, s := range c.w.srv.Sessions() {
		if s.ID == c.session() {
			require.Len(c.w, s.Ephemerals, 1)
			return s.Ephemerals[0]
		}
	}
	c.w.Fatal("no such session")
	return ""
}

// waiting asserts that all of these contenders wait, and holding that all of them hold their
// leases.
func (w *harness) waiting(all ...*call) {
	w.Helper()
	for _, c := range all {
		c.waits()
	}
}

func (w *harness) holding(all ...*call) {
	w.Helper()
	for _, c := range all {
		c.holds()
	}
}

// leases returns the paths of the contenders' znodes.
func (w *harness) leases() (names []string) {
	for _, s := range w.srv.Sessions() {
		for _, path := range s.Ephemerals {
			if !strings.Contains(path, "/_r_") {
				names = append(names, path)
			}
		}
	}
	return names
}

// clean asserts that no znode of a contender and no watch is left.
func (w *harness) clean() {
	w.Helper()
	synctest.Wait()
	require.Empty(w, w.leases())
	require.Empty(w, w.srv.Watches())
}

// sent returns the requests that a session sends while f runs, without pings.
func (w *harness) sent(session int64, f func()) zktest.Log {
	begin := len(w.srv.Log())
	f()
	synctest.Wait()
	return w.srv.Log()[begin:].Session(session).Requests()
}

// withoutChecks removes the checks of leases from a log.
func withoutChecks(log zktest.Log) zktest.Log {
	return log.Filter(func(e zktest.Entry) bool { return e.Op != zktest.OpMulti || e.Ops != 1 })
}

// woken returns the sessions to which the server sends events of watches while f runs, once for
// each event.
func (w *harness) woken(f func()) (sessions []int64) {
	begin := len(w.srv.Log())
	f()
	synctest.Wait()
	for _, e := range w.srv.Log()[begin:] {
		if e.Op == zktest.OpNotification {
			sessions = append(sessions, e.Session)
		}
	}
	return sessions
}

// createLease creates an ephemeral znode, owned by the operator, whose name begins with prefix. It
// returns the path.
func (w *harness) createLease(prefix string) string {
	w.Helper()
	path, err := w.operator.Create(semPath+"/"+prefix, nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	require.NoError(w, err)
	synctest.Wait()
	return path
}

func forEachSemaphoreLoss(t *testing.T, f func(w *harness, l bubble.Fault)) {
	for _, l := range slices.Concat(bubble.ConnectionLost[:2], bubble.SessionMoved) {
		t.Run(l.Name, func(t *testing.T) { runSemaphoreTest(t, func(w *harness) { f(w, l) }) })
	}
}
