package lock

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const (
	node  = "/locks/one"
	under = node + "/*" // matches the contenders' znodes
	// moment is as long as it takes to find out why a znode has gone.
	moment = 10 * time.Millisecond
	// confirmed is how long a contender that leaves waits for the confirmation.
	confirmed = 1500 * time.Millisecond
)

// world is a test in a bubble: servers and clients on fake time. At its end nothing
// may be left of any contender, and no two grants that exclude each other may have
// been there together.
type harness struct {
	*testing.T
	ensemble *zktest.Ensemble
	srv      *zktest.Server // its first
	operator *zk.Conn       // a client beside the contenders
	stood    int            // see stand
	calls    []*call
	excused  bool // two holders at once are nobody's fault
	untidy   bool // what is left is nobody's fault

	mu     sync.Mutex
	grants []*granted
}

// granted is a hold and when it was one.
type granted struct {
	*Hold
	dir      string
	reads    bool
	from, to time.Time // to is zero while it lasts
	written  time.Time // until when for writing, of one that was downgraded
}

// newHarness returns a harness with as many servers. Call it in a bubble.
func newHarness(t *testing.T, servers int, options ...zktest.Option) *harness {
	w := &harness{T: t, ensemble: zktest.Cluster(t, servers, options...)}
	t.Cleanup(w.leave)
	w.srv = w.ensemble.Server(0)
	w.operator = w.connect()
	return w
}

// play runs f in a bubble with as many servers.
func play(t *testing.T, servers int, f func(w *harness), options ...zktest.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) }) // what cannot leave ends with its client
		w := newHarness(t, servers, options...)
		f(w)
		w.leave()
		w.checkGrants()
		if !w.untidy {
			w.line()
			require.Empty(w, w.srv.Watches())
		}
	})
}

// leave has all contenders leave, and waits until they have.
func (w *harness) leave() {
	for _, a := range w.calls {
		a.cancel()
		select {
		case <-a.done:
			if a.hold != nil {
				go a.hold.Release(context.Background())
			}
		default:
		}
	}
	w.pass(timeout)
}

// checkGrants asserts that no two grants that exclude each other were there at
// once, and that the later one had the greater token.
func (w *harness) checkGrants() {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.excused {
		return
	}
	for i, a := range w.grants {
		for _, b := range w.grants[i+1:] {
			if a.dir != b.dir || a.reads && b.reads {
				continue
			}
			to := a.to
			if b.reads && !a.written.IsZero() {
				to = a.written
			}
			require.False(w, to.IsZero() || to.After(b.from), "token %d was held until %v, %d from %v", a.Token(), to, b.Token(), b.from)
			require.Greater(w, b.Token(), a.Token())
		}
	}
}

// note keeps a hold for checkGrants.
func (w *harness) note(h *Hold) {
	g := &granted{Hold: h, dir: h.dir, reads: contender.Reads(path.Base(h.Path())), from: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.grants = append(w.grants, g)
	context.AfterFunc(h.Context(), func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		g.to = time.Now()
	})
}

// connect opens a session, at server 0 first where there are several.
func (w *harness) connect() *zk.Conn { return w.connectTo(0) }

func (w *harness) connectTo(server int) *zk.Conn {
	w.Helper()
	conn, _, err := w.ensemble.ConnectFrom(server, timeout, zk.WithMaxBufferSize(64<<10)) // by default 1.5 MB, cleared each time
	require.NoError(w, err)
	w.pass(0)
	require.Equal(w, zk.StateHasSession, conn.State())
	return conn
}

// pass lets time pass, and then what happens at that instant happen.
func (w *harness) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *harness) mutex(conn *zk.Conn, options ...recipes.Option) *Mutex {
	w.Helper()
	return newMutex(w.T, conn, options...)
}

func (w *harness) rw(conn *zk.Conn, options ...recipes.Option) *RWMutex {
	w.Helper()
	m, err := NewRWMutex(conn, node, append([]recipes.Option{recipes.WithSessionTimeout(timeout)}, options...)...)
	require.NoError(w, err)
	return m
}

// remove deletes a znode.
func (w *harness) remove(path string) {
	w.Helper()
	require.NoError(w, w.operator.Delete(path, -1))
}

// create makes a persistent znode.
func (w *harness) create(path string) {
	w.Helper()
	_, err := w.operator.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(w, err)
}

// set writes a znode's data.
func (w *harness) set(path, data string) {
	w.Helper()
	_, err := w.operator.Set(path, []byte(data), -1)
	require.NoError(w, err)
}

// stat reads a znode that must be there.
func (w *harness) stat(path string) *zk.Stat {
	w.Helper()
	found, stat, err := w.operator.Exists(path)
	require.NoError(w, err)
	require.True(w, found, path)
	return stat
}

// stand puts a znode into the line, named as by Curator, that does nothing but
// stand there; of what kind says the end of its name.
func (w *harness) stand(base string) string {
	w.Helper()
	w.stood++
	path, err := w.operator.Create(fmt.Sprintf("%s/_c_00000000-0000-4000-8000-%012d%s", node, w.stood, base), nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	require.NoError(w, err)
	return path
}

// dirs makes the lock's znode before anybody contends.
func (w *harness) dirs() {
	w.create("/locks")
	w.create(node)
}

// contenders are the paths of the contenders' znodes, as the server keeps them:
// lock by lock in the order of the line.
func (w *harness) contenders() (found []string) {
	var parents []string
	children := map[string][]string{}
	for _, name := range strings.Split(w.srv.Tree(), "\n") {
		depth := (len(name) - len(strings.TrimLeft(name, " "))) / 2
		name, _, _ = strings.Cut(strings.TrimSpace(name), " ")
		switch depth {
		case 2:
			parents = append(parents, "/locks/"+name)
		case 3:
			parent := parents[len(parents)-1]
			children[parent] = append(children[parent], name)
		}
	}
	for _, parent := range parents {
		names, _, _ := contender.Order(children[parent], "")
		for _, name := range slices.DeleteFunc(names, func(name string) bool { return !contender.Recognized(name) }) {
			found = append(found, path.Join(parent, name))
		}
	}
	return found
}

// line asserts that these contenders have znodes and no others.
func (w *harness) line(paths ...string) {
	w.Helper()
	require.ElementsMatch(w, paths, w.contenders())
}

// created lists the contenders' znodes that were ever created.
func (w *harness) created() (paths []string) {
	for _, e := range w.srv.Log() {
		switch {
		case strings.HasPrefix(e.Created, node+"/"):
			paths = append(paths, e.Created)
		case e.Code == 0 && isStampedCreate(e):
			paths = append(paths, e.Path)
		}
	}
	return paths
}

// isStampedCreate reports whether an entry is a create in one transaction with the write of the
// lock's znode. Its path has no sequence number.
func isStampedCreate(e zktest.Entry) bool {
	return e.Op == zktest.OpMulti && e.Ops == 2 && strings.HasPrefix(e.Path, node+"/") && strings.ContainsAny(e.Path[len(e.Path)-1:], "-_")
}

// beforeCreate runs do before each create of a contender's znode.
func (w *harness) beforeCreate(do zktest.HookFunc) {
	w.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: under}, do)
	w.srv.Before(zktest.Match{Op: zktest.OpMulti, Path: under}, func(q *zktest.Request) zktest.Verdict {
		if !slices.Contains(q.Paths, node) {
			return zktest.Pass(q) // not a create
		}
		return do(q)
	})
}

// ran asserts that hooks have met their requests.
func (w *harness) ran(hooks ...*zktest.Hook) {
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
func (w *harness) gate() (wait <-chan struct{}, open func()) {
	c := make(chan struct{})
	open = sync.OnceFunc(func() { close(c) })
	w.Cleanup(open)
	return c, open
}

// servers calls f for each server.
func (w *harness) servers(f func(*zktest.Server)) {
	for i := range w.ensemble.Len() {
		f(w.ensemble.Server(i))
	}
}

// cut breaks a client's connection and keeps everybody out until restore.
func (w *harness) cut(conn *zk.Conn) {
	session := conn.SessionID()
	w.servers(func(s *zktest.Server) {
		s.Refuse(true)
		s.DropConnections(session)
	})
	w.pass(0)
}

// restore lets clients in again, and waits until all are.
func (w *harness) restore() {
	w.servers(func(s *zktest.Server) { s.Refuse(false) })
	w.pass(time.Second + moment) // the client library pauses that long when it has tried all
}

// expire ends a client's session.
func (w *harness) expire(conn *zk.Conn) {
	w.Helper()
	require.NoError(w, w.srv.ExpireSession(conn.SessionID()))
}

// outlive cuts a contender off, ends its session, and leaves a znode of its name
// behind: as one of a session that has ended may still be seen, by a server that
// lags or a bug of its.
func (w *harness) outlive(conn *zk.Conn, path string) {
	w.Helper()
	w.cut(conn)
	w.expire(conn)
	w.create(path)
}

// session is that of a connection, as the servers know it.
func (w *harness) session(conn *zk.Conn) zktest.Session {
	w.Helper()
	all := w.ensemble.Leader().Sessions()
	i := slices.IndexFunc(all, func(s zktest.Session) bool { return s.ID == conn.SessionID() })
	require.GreaterOrEqual(w, i, 0, "the session has ended")
	return all[i]
}

// watched lists the paths that are watched, each as often as there are watches.
func (w *harness) watched() (paths []string) {
	for _, x := range w.srv.Watches() {
		paths = append(paths, x.Path)
	}
	return paths
}

// async starts something that blocks: what it returns is in the channel.
func async[T any](f func() T) <-chan T {
	c := make(chan T, 1)
	go func() { c <- f() }()
	return c
}

// elapsed asserts how long f takes.
func (w *harness) elapsed(want time.Duration, f func()) {
	w.Helper()
	begin := time.Now()
	f()
	require.Equal(w, want, time.Since(begin))
}

// doneAt tells when a hold ends.
func doneAt(h *Hold) <-chan time.Time {
	return async(func() time.Time { <-h.Done(); return time.Now() })
}

// call is a call that acquires a lock or leases.
type call struct {
	w      *harness
	conn   *zk.Conn
	cancel context.CancelFunc
	done   chan struct{} // closed when it has returned
	at     time.Time     // when
	hold   *Hold
	err    error
}

// startCall calls f in a new goroutine. The context is done at the end of the test.
func (w *harness) startCall(conn *zk.Conn, f func(context.Context) (*Hold, error)) *call {
	ctx, cancel := context.WithCancel(context.Background())
	a := &call{w: w, conn: conn, cancel: cancel, done: make(chan struct{})}
	w.calls = append(w.calls, a)
	go func() {
		defer close(a.done)
		if a.hold, a.err = f(ctx); a.hold != nil {
			w.note(a.hold)
		}
		a.at = time.Now()
	}()
	return a
}

// lock asks for the mutex and lets that find its place.
func (w *harness) lock(conn *zk.Conn, options ...recipes.Option) *call {
	w.Helper()
	a := w.startCall(conn, w.mutex(conn, options...).Lock)
	w.pass(0)
	return a
}

// read asks for the lock for reading and lets that find its place.
func (w *harness) read(conn *zk.Conn, options ...recipes.Option) *call {
	w.Helper()
	a := w.startCall(conn, w.rw(conn, options...).RLock)
	w.pass(0)
	return a
}

// write asks for the lock for writing and lets that find its place.
func (w *harness) write(conn *zk.Conn, options ...recipes.Option) *writer {
	w.Helper()
	x := &writer{}
	x.call = w.startCall(conn, func(ctx context.Context) (*Hold, error) {
		h, err := w.rw(conn, options...).Lock(ctx)
		if err != nil {
			return nil, err
		}
		x.write = h
		return h.Hold, nil
	})
	w.pass(0)
	return x
}

// writer is a call that asks for a lock for writing.
type writer struct {
	*call
	write *WriteHold
}

// downgrade makes it a lock for reading.
func (x *writer) downgrade() {
	x.w.Helper()
	require.NoError(x.w, x.write.Downgrade(x.w.Context()))
	x.w.mu.Lock()
	defer x.w.mu.Unlock()
	for _, g := range x.w.grants {
		if g.Hold == x.hold && g.written.IsZero() {
			g.written = time.Now()
		}
	}
}

// asReader is the path of the znode after a downgrade.
func (x *writer) asReader() string {
	return strings.NewReplacer("__WRIT__", "__READ__", "__lock__", "__rlock__").Replace(x.hold.Path())
}

// holds asserts that the lock was granted and is held.
func (a *call) holds() *Hold {
	a.w.Helper()
	select {
	case <-a.done:
		require.NoError(a.w, a.err)
		require.NoError(a.w, a.hold.Err())
		return a.hold
	default:
		require.Fail(a.w, "still waits")
		return nil
	}
}

// waits asserts that the lock is still waited for.
func (a *call) waits() {
	a.w.Helper()
	select {
	case <-a.done:
		require.Fail(a.w, "has returned", "%v", a.err)
	default:
	}
}

// result returns whether the call has returned, and its results.
func (a *call) result() (over bool, h *Hold, err error) {
	select {
	case <-a.done:
		return true, a.hold, a.err
	default:
		return false, nil, nil
	}
}

// failed asserts that the lock was not granted, and returns why.
func (a *call) failed() error {
	a.w.Helper()
	select {
	case <-a.done:
		require.Error(a.w, a.err)
		return a.err
	default:
		require.Fail(a.w, "still waits")
		return nil
	}
}

// release releases and asserts that this is confirmed.
func (a *call) release() {
	a.w.Helper()
	require.NoError(a.w, a.holds().Release(a.w.Context()))
	a.w.pass(0)
}

// alone asserts that the hold has the only znode, of its own session.
func (a *call) alone() {
	a.w.Helper()
	h := a.holds()
	a.w.line(h.Path())
	stat := a.w.stat(h.Path())
	require.Equal(a.w, a.conn.SessionID(), stat.EphemeralOwner)
	require.Equal(a.w, stat.Czxid, h.Token())
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
func each(t *testing.T, of []loss, servers int, f func(w *harness, l loss)) {
	for _, l := range of {
		t.Run(l.name, func(t *testing.T) {
			play(t, servers, func(w *harness) { f(w, l) })
		})
	}
}

// connect opens a session and lets it come about. Call it in a bubble.
func connect(t *testing.T, srv *zktest.Server) *zk.Conn {
	conn, _, err := srv.Connect(timeout, zk.WithMaxBufferSize(64<<10))
	require.NoError(t, err)
	synctest.Wait()
	return conn
}

func newMutex(t *testing.T, conn *zk.Conn, opts ...recipes.Option) *Mutex {
	m, err := NewMutex(conn, "/locks/one", append([]recipes.Option{recipes.WithSessionTimeout(timeout)}, opts...)...)
	require.NoError(t, err)
	return m
}

const timeout = 4 * time.Second // of sessions

// marks are those of holders.
func (w *harness) marks() (found []string) {
	for _, name := range strings.Fields(w.srv.Tree()) {
		if strings.HasPrefix(name, "held-") {
			found = append(found, name)
		}
	}
	return found
}

// silence keeps a client from everybody, and everybody from new connections.
func (w *harness) silence(conn *zk.Conn) {
	w.srv.Blackhole(zktest.BothWays, conn.SessionID())
	w.srv.Refuse(true)
}

func (w *harness) unsilence(conn *zk.Conn) {
	w.srv.Refuse(false)
	w.srv.Heal(conn.SessionID())
}

var errEnough = errors.New("enough")
