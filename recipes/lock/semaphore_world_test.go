package lock

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const (
	semTimeout = 4 * time.Second // of sessions
	semPath    = "/app/sem"
	semBelow   = semPath + "/*"
)

// semWorld is a test of semaphores in a bubble: a server and clients on fake time.
type semWorld struct {
	*testing.T
	srv      *zktest.Server
	operator *zk.Conn // a client beside the contenders
}

func playSem(t *testing.T, f func(w *semWorld)) {
	synctest.Test(t, func(t *testing.T) {
		// Contenders that a test leaves behind end with the server; time passes only
		// while the test runs.
		t.Cleanup(func() { time.Sleep(10 * semTimeout) })
		w := &semWorld{T: t, srv: zktest.Start(t)}
		w.operator = w.connect()
		_, err := w.operator.Create("/app", nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		f(w)
	})
}

// connect opens a session.
func (w *semWorld) connect() *zk.Conn {
	conn, _, err := w.srv.Connect(semTimeout, zk.WithMaxBufferSize(64<<10))
	require.NoError(w, err)
	synctest.Wait()
	require.Equal(w, zk.StateHasSession, conn.State())
	return conn
}

// pass lets time pass, and then what happens at that instant happen.
func (w *semWorld) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func semOptions(opts []recipes.Option) []recipes.Option {
	return append([]recipes.Option{recipes.WithSessionTimeout(semTimeout)}, opts...)
}

func (w *semWorld) semaphore(conn *zk.Conn, limit int, opts ...recipes.Option) *Semaphore {
	s, err := NewSemaphore(conn, semPath, limit, semOptions(opts)...)
	require.NoError(w, err)
	return s
}

// semContender is a call of Acquire and what has come of it.
type semContender struct {
	w      *semWorld
	conn   *zk.Conn
	cancel context.CancelFunc

	mu   sync.Mutex
	over bool
	hold *Hold
	err  error
	at   time.Time // when it was over
}

// contend has somebody with a session of its own ask for n leases, and lets it find
// its place.
func (w *semWorld) contend(limit, n int) *semContender {
	return w.ask(w.semaphore(w.connect(), limit), n)
}

func (w *semWorld) ask(s *Semaphore, n int) *semContender {
	c := w.start(s, n)
	synctest.Wait()
	return c
}

// start is ask that does not wait.
func (w *semWorld) start(s *Semaphore, n int) *semContender {
	ctx, cancel := context.WithCancel(w.Context())
	c := &semContender{w: w, conn: s.setup.Conn, cancel: cancel}
	w.Cleanup(cancel)
	go func() {
		h, err := s.Acquire(ctx, n)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.over, c.hold, c.err, c.at = true, h, err, time.Now()
	}()
	return c
}

func (c *semContender) result() (over bool, h *Hold, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over, c.hold, c.err
}

// holds asserts that the leases were granted and are held.
func (c *semContender) holds() *Hold {
	c.w.Helper()
	over, h, err := c.result()
	require.True(c.w, over, "it waits\n%s", c.w.srv.Tree())
	require.NoError(c.w, err)
	require.NoError(c.w, h.Err())
	return h
}

func (c *semContender) waits() {
	c.w.Helper()
	over, _, err := c.result()
	require.False(c.w, over, "it does not wait: %v\n%s", err, c.w.srv.Tree())
}

// fails asserts that Acquire has returned an error.
func (c *semContender) fails(want error) {
	c.w.Helper()
	over, _, err := c.result()
	require.True(c.w, over, "it waits")
	require.ErrorIs(c.w, err, want)
}

// release gives the leases back and lets that take effect.
func (c *semContender) release() {
	c.w.Helper()
	require.NoError(c.w, c.holds().Release(c.w.Context()))
	synctest.Wait()
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
func (w *semWorld) waiting(all ...*semContender) {
	w.Helper()
	for _, c := range all {
		c.waits()
	}
}

func (w *semWorld) holding(all ...*semContender) {
	w.Helper()
	for _, c := range all {
		c.holds()
	}
}

// leases are the names of the contenders' znodes below dir.
func (w *semWorld) leases() (names []string) {
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
func (w *semWorld) clean() {
	w.Helper()
	synctest.Wait()
	require.Empty(w, w.leases())
	require.Empty(w, w.srv.Watches())
}

// sent are the requests of a session while f runs, without pings.
func (w *semWorld) sent(session int64, f func()) zktest.Log {
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
func (w *semWorld) woken(f func()) (sessions []int64) {
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

// ran asserts that hooks have run.
func (w *semWorld) ran(hooks ...*zktest.Hook) {
	w.Helper()
	for _, h := range hooks {
		select {
		case <-h.Ran():
		default:
			require.Fail(w, "a hook has not run")
		}
	}
}

// cut breaks a client's connection and keeps everybody out until restore.
func (w *semWorld) cut(conn *zk.Conn) {
	w.srv.Refuse(true)
	w.srv.DropConnections(conn.SessionID())
	synctest.Wait()
}

// restore lets clients in again, and waits until all are.
func (w *semWorld) restore() {
	w.srv.Refuse(false)
	w.srv.Heal()
	w.pass(1100 * time.Millisecond) // the client library pauses for a second when it has tried all
}

func (w *semWorld) remove(path string) {
	w.Helper()
	require.NoError(w, w.operator.Delete(path, -1))
	synctest.Wait()
}

// stand has the operator own a semContender's znode of the given prefix.
func (w *semWorld) stand(prefix string) string {
	w.Helper()
	path, err := w.operator.Create(semPath+"/"+prefix, nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	require.NoError(w, err)
	synctest.Wait()
	return path
}

// semLoss is a way in which the answer to a request gets lost.
type semLoss struct {
	name    string
	applied bool
	set     func(*zktest.Server, zktest.Match) *zktest.Hook
}

var semLosses = []semLoss{
	{"cut before the request", false, func(s *zktest.Server, m zktest.Match) *zktest.Hook { return s.Before(m, zktest.Cut) }},
	{"cut before the reply", true, func(s *zktest.Server, m zktest.Match) *zktest.Hook { return s.After(m, zktest.Cut) }},
	{"session moved before the request", false, func(s *zktest.Server, m zktest.Match) *zktest.Hook {
		return s.Before(m, zktest.Fail(zk.ErrSessionMoved))
	}},
	{"session moved before the reply", true, func(s *zktest.Server, m zktest.Match) *zktest.Hook {
		return s.After(m, zktest.Fail(zk.ErrSessionMoved))
	}},
}

func eachLoss(t *testing.T, f func(w *semWorld, l semLoss)) {
	for _, l := range semLosses {
		t.Run(l.name, func(t *testing.T) { playSem(t, func(w *semWorld) { f(w, l) }) })
	}
}
