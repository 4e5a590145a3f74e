package lock

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const (
	semPath  = "/app/sem"
	semBelow = semPath + "/*"
)

// semHarness is a test of semaphores in a bubble, with one server and clients on fake time.
type semHarness struct{ *harness }

func runSemaphoreTest(t *testing.T, f func(w *semHarness)) {
	synctest.Test(t, func(t *testing.T) {
		// Contenders that a test leaves behind end with the server; time passes only
		// while the test runs.
		t.Cleanup(func() { time.Sleep(10 * timeout) })
		w := &semHarness{newHarness(t, 1)}
		w.create("/app")
		f(w)
	})
}

func semOptions(opts []recipes.Option) []recipes.Option {
	return append([]recipes.Option{recipes.WithSessionTimeout(timeout)}, opts...)
}

func (w *semHarness) semaphore(conn *zk.Conn, limit int, opts ...recipes.Option) *Semaphore {
	s, err := NewSemaphore(conn, semPath, limit, semOptions(opts)...)
	require.NoError(w, err)
	return s
}

// semContender is a call of Acquire.
type semContender struct {
	*call
	w *semHarness
}

// contend opens a session, requests n leases, and waits until the contender is in the queue.
func (w *semHarness) contend(limit, n int) *semContender {
	return w.acquire(w.semaphore(w.connect(), limit), n)
}

// acquire requests n leases, and waits until the contender is in the queue.
func (w *semHarness) acquire(s *Semaphore, n int) *semContender {
	c := w.startAcquire(s, n)
	synctest.Wait()
	return c
}

// startAcquire requests n leases and does not wait.
func (w *semHarness) startAcquire(s *Semaphore, n int) *semContender {
	return &semContender{w.startCall(s.setup.Conn, func(ctx context.Context) (*Hold, error) { return s.Acquire(ctx, n) }), w}
}

// fails asserts that Acquire has returned an error.
func (c *semContender) fails(want error) {
	c.w.Helper()
	require.ErrorIs(c.w, c.failed(), want)
}

// session is that of the semContender's connection.
func (c *semContender) session() int64 { return c.conn.SessionID() }

// path is that of the only znode that the semContender's session owns.
func (c *semContender) path() string {
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

// waiting asserts who waits, and holding who holds.
func (w *semHarness) waiting(all ...*semContender) {
	w.Helper()
	for _, c := range all {
		c.waits()
	}
}

func (w *semHarness) holding(all ...*semContender) {
	w.Helper()
	for _, c := range all {
		c.holds()
	}
}

// leases are the names of the contenders' znodes below dir.
func (w *semHarness) leases() (names []string) {
	for _, s := range w.srv.Sessions() {
		for _, path := range s.Ephemerals {
			if !strings.Contains(path, "/_r_") {
				names = append(names, path)
			}
		}
	}
	return names
}

// clean asserts that no znode of a semContender and no watch is left.
func (w *semHarness) clean() {
	w.Helper()
	synctest.Wait()
	require.Empty(w, w.leases())
	require.Empty(w, w.srv.Watches())
}

// sent are the requests of a session while f runs, without pings.
func (w *semHarness) sent(session int64, f func()) zktest.Log {
	begin := len(w.srv.Log())
	f()
	synctest.Wait()
	return w.srv.Log()[begin:].Session(session).Requests()
}

// withoutChecks removes from a log the checks that prove the session's life.
func withoutChecks(log zktest.Log) zktest.Log {
	return log.Filter(func(e zktest.Entry) bool { return e.Op != zktest.OpMulti || e.Ops != 1 })
}

// woken are the sessions that were told of something while f ran.
func (w *semHarness) woken(f func()) (sessions []int64) {
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

// restore lets clients connect again, heals the network, and waits until all are connected.
func (w *semHarness) restore() {
	w.srv.Heal()
	w.harness.restore()
}

func (w *semHarness) remove(path string) {
	w.Helper()
	w.harness.remove(path)
	synctest.Wait()
}

// stand has the operator own a semContender's znode of the given prefix.
func (w *semHarness) stand(prefix string) string {
	w.Helper()
	path, err := w.operator.Create(semPath+"/"+prefix, nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	require.NoError(w, err)
	synctest.Wait()
	return path
}

func eachLoss(t *testing.T, f func(w *semHarness, l loss)) {
	for _, l := range append(slices.Clone(losses[:2]), answers...) {
		t.Run(l.name, func(t *testing.T) { runSemaphoreTest(t, func(w *semHarness) { f(w, l) }) })
	}
}
