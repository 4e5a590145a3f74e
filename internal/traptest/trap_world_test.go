package traptest

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const (
	// moment is as long as it takes to find out why a znode has gone.
	moment = 10 * time.Millisecond
	// confirmed is how long Resign waits for a confirmation.
	confirmed = 1500 * time.Millisecond
)

// under matches the znodes of the candidates.
const under = node + "/*"

// history is who led when.
type history struct {
	mu      sync.Mutex
	terms   []*term
	excused bool // for tests in which two leaders are nobody's fault
}

type term struct {
	id       string
	token    int64
	from, to time.Time // to is zero while it lasts
}

func (h *history) note(s leaderelection.Status) {
	if s.Leadership == nil {
		return
	}
	t := &term{id: s.CandidateID, token: s.Leadership.Token(), from: time.Now()}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.terms = append(h.terms, t)
	context.AfterFunc(s.Leadership.Context(), func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		t.to = time.Now()
	})
}

// check asserts that there were never two leaders, and that each one's token was
// greater than those before.
func (h *history) check(w *world) {
	w.Helper()
	w.pass(0)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.excused {
		return
	}
	slices.SortStableFunc(h.terms, func(a, b *term) int { return cmp.Compare(a.token, b.token) })
	for i, t := range h.terms {
		for _, u := range h.terms[i+1:] {
			rivals := t.id != u.id && path.Dir(t.id) == path.Dir(u.id)
			overlap := t.to.IsZero() || t.to.After(u.from)
			require.False(w, rivals && overlap, "%s led until %v, %s from %v", t.id, t.to, u.id, u.from)
		}
	}
}

// loss is a way in which the outcome of a request becomes unknown.
type loss struct {
	name    string
	applied bool // though nobody is told
	silent  bool // nor is the connection closed
	set     func(s *zktest.Server, m zktest.Match) *zktest.Hook
}

var losses = []loss{
	{"cut before the request", false, false, func(s *zktest.Server, m zktest.Match) *zktest.Hook {
		return s.Before(m, zktest.Cut)
	}},
	{"cut before the reply", true, false, func(s *zktest.Server, m zktest.Match) *zktest.Hook {
		return s.After(m, zktest.Cut)
	}},
	{"silence instead of the reply", true, true, func(s *zktest.Server, m zktest.Match) *zktest.Hook {
		return s.After(m, func(q *zktest.Request) zktest.Verdict {
			q.Server.Blackhole(zktest.BothWays, q.Session)
			return zktest.Pass(q)
		})
	}},
}

// answers are those that leave the outcome open though the connection is well.
var answers = []loss{
	{"session moved before the request", false, false, func(s *zktest.Server, m zktest.Match) *zktest.Hook {
		return s.Before(m, zktest.Fail(zk.ErrSessionMoved))
	}},
	{"session moved before the reply", true, false, func(s *zktest.Server, m zktest.Match) *zktest.Hook {
		return s.After(m, zktest.Fail(zk.ErrSessionMoved))
	}},
}

// each runs f in a world of its own for each loss.
func each(t *testing.T, of []loss, servers int, f func(w *world, l loss)) {
	for _, l := range of {
		t.Run(l.name, func(t *testing.T) {
			play(t, servers, func(w *world) { f(w, l) })
		})
	}
}

// connectUnlimited opens a session that takes answers of any length.
func (w *world) connectUnlimited() *zk.Conn {
	conn, _, err := w.ensemble.ConnectFrom(0, timeout)
	require.NoError(w, err)
	w.pass(0)
	return conn
}

// create makes a persistent znode.
func (w *world) create(path string) {
	w.Helper()
	_, err := w.operator.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(w, err)
}

// remove deletes a znode.
func (w *world) remove(path string) {
	w.Helper()
	require.NoError(w, w.operator.Delete(path, -1))
}

// stat reads a znode that must be there.
func (w *world) stat(path string) *zk.Stat {
	w.Helper()
	found, stat, err := w.operator.Exists(path)
	require.NoError(w, err)
	require.True(w, found, path)
	return stat
}

// stand puts a znode into the line, named as by Curator, that does nothing but
// stand there.
func (w *world) stand(conn *zk.Conn) string {
	w.Helper()
	w.stood++
	name := fmt.Sprintf("%s/_c_00000000-0000-4000-8000-%012d-latch-", node, w.stood)
	path, err := conn.Create(name, nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	require.NoError(w, err)
	return path
}

// ids are the paths of the election's children.
func (w *world) ids() (found []string) {
	for _, name := range w.children() {
		name, _, _ = strings.Cut(name, " ")
		found = append(found, path.Join(node, name))
	}
	return found
}

// line asserts that the election has these children and no others.
func (w *world) line(ids ...string) {
	w.Helper()
	require.ElementsMatch(w, ids, w.ids())
}

// created lists the candidates' znodes that were ever created.
func (w *world) created() (paths []string) {
	for _, e := range w.srv.Log() {
		if strings.HasPrefix(e.Created, node+"/") {
			paths = append(paths, e.Created)
		}
	}
	return paths
}

// ran asserts that hooks have met their requests.
func (w *world) ran(hooks ...*zktest.Hook) {
	w.Helper()
	for _, h := range hooks {
		require.True(w, ran(h), "the hook has met no request")
	}
}

// ran reports whether a hook has met its request.
func ran(h *zktest.Hook) bool {
	select {
	case <-h.Ran():
		return true
	default:
		return false
	}
}

// gate returns what a hook can wait for, and what ends that; the test's end does.
func (w *world) gate() (wait <-chan struct{}, open func()) {
	c := make(chan struct{})
	open = sync.OnceFunc(func() { close(c) })
	w.Cleanup(open)
	return c, open
}

// servers calls f for each server.
func (w *world) servers(f func(*zktest.Server)) {
	for i := range w.ensemble.Len() {
		f(w.ensemble.Server(i))
	}
}

// cut breaks a client's connection and keeps everybody out until restore.
func (w *world) cut(conn *zk.Conn) {
	session := conn.SessionID()
	w.servers(func(s *zktest.Server) {
		s.Refuse(true)
		s.DropConnections(session)
	})
	w.pass(0)
}

// restore lets clients in again, and waits until all are.
func (w *world) restore() {
	w.servers(func(s *zktest.Server) { s.Refuse(false) })
	w.pass(time.Second + moment) // the client library pauses that long when it has tried all
}

// expire ends a client's session.
func (w *world) expire(conn *zk.Conn) {
	w.Helper()
	require.NoError(w, w.srv.ExpireSession(conn.SessionID()))
}

// outlive cuts a candidate off, ends its session, and leaves a znode of its name
// behind: as one of a session that has ended may still be seen, by a server that
// lags or a bug of its.
func (w *world) outlive(c *candidate) {
	w.Helper()
	w.cut(c.conn)
	w.expire(c.conn)
	w.create(c.ID())
}

// session is that of a candidate's connection, as the servers know it.
func (w *world) session(c *candidate) zktest.Session {
	w.Helper()
	all := w.ensemble.Leader().Sessions()
	i := slices.IndexFunc(all, func(s zktest.Session) bool { return s.ID == c.conn.SessionID() })
	require.GreaterOrEqual(w, i, 0, "the session has ended")
	return all[i]
}

// watched lists the paths under the election node that are watched, each as
// often as there are watches.
func (w *world) watched() (paths []string) {
	for _, x := range w.srv.Watches() {
		if strings.HasPrefix(x.Path, node) {
			paths = append(paths, x.Path)
		}
	}
	return paths
}

// clientWatches is how many watches the client library keeps for a connection.
func clientWatches(conn *zk.Conn) (n int) {
	fields := reflect.ValueOf(conn).Elem()
	lock := (*sync.Mutex)(unsafe.Pointer(fields.FieldByName("watchersLock").UnsafeAddr()))
	lock.Lock()
	defer lock.Unlock()
	for _, channels := range fields.FieldByName("watchers").Seq2() {
		n += channels.Len()
	}
	return n
}

// resign has the candidate resign and asserts what follows.
func (c *candidate) resign() {
	c.w.Helper()
	require.NoError(c.w, c.Resign())
	c.w.pass(0)
	require.NoError(c.w, c.over())
}

// alone asserts that the candidate has one znode, of its own session, and nobody
// else has any.
func (c *candidate) alone() {
	c.w.Helper()
	c.w.line(c.ID())
	require.Equal(c.w, c.conn.SessionID(), c.w.stat(c.ID()).EphemeralOwner)
}

// never asserts that the candidate has not led.
func (c *candidate) never() {
	c.w.Helper()
	for _, s := range c.all() {
		require.NotEqual(c.w, leaderelection.Leader, s.Role, "%v", s.Status)
	}
}

// async runs f, which may block; what it returns comes over the channel.
func async[T any](f func() T) <-chan T {
	c := make(chan T, 1)
	go func() { c <- f() }()
	return c
}

// receive takes what must be in a channel already.
func receive[T any](w *world, c <-chan T) (v T) {
	w.Helper()
	select {
	case v = <-c:
	default:
		require.Fail(w, "there is nothing to receive")
	}
	return v
}

// elapsed asserts how long f takes.
func (w *world) elapsed(want time.Duration, f func()) {
	w.Helper()
	begin := time.Now()
	f()
	require.Equal(w, want, time.Since(begin))
}

// logger is a slog.Handler that is called, on the candidate's goroutine, with each
// status before it is delivered.
type logger func(leaderelection.Status)

func (l logger) Enabled(context.Context, slog.Level) bool { return true }

func (l logger) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if s, ok := a.Value.Any().(leaderelection.Status); ok {
			l(s)
		}
		return true
	})
	return nil
}

// notes has a candidate note in led whether it ever took itself for the leader,
// though that may be taken back before anybody reads it, and call f.
func notes(led *atomic.Bool, f func()) leaderelection.Option {
	return leaderelection.WithLogger(slog.New(logger(func(s leaderelection.Status) {
		if s.Role == leaderelection.Leader {
			led.Store(true)
		}
		f()
	})))
}

func (l logger) WithAttrs([]slog.Attr) slog.Handler { return l }

func (l logger) WithGroup(string) slog.Handler { return l }
