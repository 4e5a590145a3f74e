package lock

import (
	"cmp"
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
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	node  = "/locks/one"
	under = node + "/*" // matches the znodes of contenders
	// moment is a time in which a contender certainly finds out why its znode was deleted.
	moment = bubble.Margin
)

// harness is the state of one test in a bubble: servers and clients with fake time. At the end of the test,
// runTest requires that no znodes of contenders are left, and that holds that exclude each other have not
// overlapped.
type harness struct {
	*testing.T
	ensemble       *zktest.Ensemble
	srv            *zktest.Server // the first server of the ensemble
	operator       *zk.Conn       // a client that is not a contender
	foreign        []string       // paths of the znodes that stand for contenders of other programs
	calls          []*call
	allowOverlap   bool // the test itself causes holds to overlap
	allowLeftovers bool // the test itself prevents the removal of znodes or watches

	mu    sync.Mutex
	holds []*heldPeriod
}

// heldPeriod is a hold with the times at which it began and ended.
type heldPeriod struct {
	*Hold
	dir        string
	shared     bool      // other readers or other leases may be held at the same time
	from, to   time.Time // to is zero while the hold lasts
	downgraded time.Time // when the hold was downgraded; zero if it was not
}

// newHarness returns a harness with the given number of servers. It must be called in a bubble.
func newHarness(t *testing.T, servers int, options ...zktest.Option) *harness {
	w := &harness{T: t, ensemble: zktest.StartEnsemble(t, servers, options...)}
	t.Cleanup(w.leave)
	w.srv = w.ensemble.Server(0)
	w.operator = w.connect()
	return w
}

// runTest runs f in a bubble with the given number of servers.
func runTest(t *testing.T, servers int, f func(w *harness), options ...zktest.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) }) // contenders that cannot leave end after their connections have been closed
		w := newHarness(t, servers, options...)
		f(w)
		w.leave()
		w.requireExclusiveHolds()
		if !w.allowLeftovers {
			w.requireContenders()
			require.Empty(w, w.srv.Watches())
		}
	})
}

// leave makes all contenders leave, deletes the znodes of other programs, and waits until no znode of a
// contender is left.
func (w *harness) leave() {
	for _, a := range w.calls {
		a.cancel()
		if a.hasReturned() && a.hold != nil {
			go a.hold.Release()
		}
	}
	w.passTime(timeout)
	for _, path := range w.foreign {
		_ = w.operator.Delete(path, -1)
	}
	w.passTime(0)
}

// requireExclusiveHolds asserts that no holds that exclude each other have overlapped, and that the later hold
// had the greater token.
func (w *harness) requireExclusiveHolds() {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.allowOverlap {
		return
	}
	for i, a := range w.holds {
		for _, b := range w.holds[i+1:] {
			if a.dir != b.dir || a.shared && b.shared {
				continue
			}
			to := a.to
			if b.shared && !a.downgraded.IsZero() {
				to = a.downgraded
			}
			require.False(w, to.IsZero() || to.After(b.from), "token %d was held until %v, %d from %v", a.Token(), to, b.Token(), b.from)
			require.Greater(w, b.Token(), a.Token())
		}
	}
}

// recordHold records a hold for requireExclusiveHolds.
func (w *harness) recordHold(h *Hold) {
	name := path.Base(h.Path())
	exclusive := strings.Contains(name, "lock") || strings.Contains(name, "__WRIT__")
	g := &heldPeriod{Hold: h, dir: h.dir, shared: !exclusive || contender.Reads(name), from: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holds = append(w.holds, g)
	context.AfterFunc(h.Context(), func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		g.to = time.Now()
	})
}

// connect opens a session. The client connects to server 0 first.
func (w *harness) connect() *zk.Conn { return w.connectTo(0) }

func (w *harness) connectTo(server int) *zk.Conn {
	w.Helper()
	return bubble.ConnectFrom(w, w.ensemble, server, timeout)
}

// passTime sleeps for d, and waits until all other goroutines are blocked.
func (w *harness) passTime(d time.Duration) { bubble.Advance(d) }

// withTimeout adds the session timeout of the tests to options, unless options contain another session timeout.
func withTimeout(options []Option) []Option {
	return append([]Option{recipes.WithSessionTimeout(timeout)}, options...)
}

func (w *harness) mutex(conn *zk.Conn, options ...Option) *Mutex {
	w.Helper()
	return w.mutexAt(conn, node, options...)
}

func (w *harness) mutexAt(conn *zk.Conn, path string, options ...Option) *Mutex {
	w.Helper()
	m, err := NewMutex(conn, path, withTimeout(options)...)
	require.NoError(w, err)
	return m
}

func (w *harness) rw(conn *zk.Conn, options ...Option) *RWMutex {
	w.Helper()
	return w.rwAt(conn, node, options...)
}

func (w *harness) rwAt(conn *zk.Conn, path string, options ...Option) *RWMutex {
	w.Helper()
	m, err := NewRWMutex(conn, path, withTimeout(options)...)
	require.NoError(w, err)
	return m
}

func (w *harness) semaphore(conn *zk.Conn, limit int, options ...Option) *Semaphore {
	w.Helper()
	s, err := NewSemaphore(conn, node, limit, withTimeout(options)...)
	require.NoError(w, err)
	return s
}

// remove deletes a znode.
func (w *harness) remove(path string) {
	w.Helper()
	require.NoError(w, w.operator.Delete(path, -1))
}

// removeAndWait deletes a znode, and waits until all goroutines are blocked.
func (w *harness) removeAndWait(path string) {
	w.Helper()
	w.remove(path)
	w.passTime(0)
}

// create creates a persistent znode.
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

// stat returns the Stat of a znode, which must exist.
func (w *harness) stat(path string) *zk.Stat {
	w.Helper()
	found, stat, err := w.operator.Exists(path)
	require.NoError(w, err)
	require.True(w, found, path)
	return stat
}

// createContender creates an ephemeral znode in the queue of the lock. The znode has the name of a contender of
// Curator, which ends in base and a sequence number; base determines the kind of contender. It returns the
// path.
func (w *harness) createContender(base string) string {
	w.Helper()
	return w.createEphemeral(fmt.Sprintf("%s/_c_00000000-0000-4000-8000-%012d%s", node, len(w.foreign), base), zk.FlagSequence)
}

// createEphemeral creates an ephemeral znode of the operator, which is deleted when the test ends. It returns the path.
func (w *harness) createEphemeral(path string, flags int32) string {
	w.Helper()
	path, err := w.operator.Create(path, nil, zk.FlagEphemeral|flags, zk.WorldACL(zk.PermAll))
	require.NoError(w, err)
	w.foreign = append(w.foreign, path)
	return path
}

// createLockNode creates the lock's znode before the first contender.
func (w *harness) createLockNode() {
	w.create("/locks")
	w.create(node)
}

// contenders returns the paths of the ephemeral znodes of contenders, sorted by lock and sequence number.
func (w *harness) contenders() (paths []string) {
	for _, s := range w.srv.Sessions() {
		for _, p := range s.Ephemerals {
			if !strings.Contains(p, "/_r_") { // records of transactions are not contenders
				paths = append(paths, p)
			}
		}
	}
	slices.SortFunc(paths, func(a, b string) int {
		return cmp.Or(cmp.Compare(path.Dir(a), path.Dir(b)), cmp.Compare(a[len(a)-10:], b[len(b)-10:]))
	})
	return paths
}

// requireContenders asserts that the contenders' znodes are exactly those at paths.
func (w *harness) requireContenders(paths ...string) {
	w.Helper()
	require.ElementsMatch(w, paths, w.contenders())
}

// beforeCreate runs do before each create of a contender's znode.
func (w *harness) beforeCreate(do zktest.HookFunc) {
	w.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: under}, do)
	w.srv.Before(zktest.Match{Op: zktest.OpMulti, Path: under}, func(q *zktest.Request) zktest.Verdict {
		if !slices.Contains(q.Paths, node) {
			return zktest.Pass(q) // the request is not a create
		}
		return do(q)
	})
}

// requireCalled asserts that the hooks were called.
func (w *harness) requireCalled(hooks ...*zktest.Hook) {
	w.Helper()
	bubble.RequireRun(w, hooks...)
}

// cutConnection breaks a client's connection. No client can connect until restore is called.
func (w *harness) cutConnection(conn *zk.Conn) { bubble.Disconnect(w.ensemble, conn) }

// restore lets clients connect again, heals the network, and waits until all are connected.
func (w *harness) restore() {
	bubble.EachServer(w.ensemble, func(s *zktest.Server) { s.Heal() })
	bubble.Reconnect(w.ensemble)
}

// expire expires a client's session.
func (w *harness) expire(conn *zk.Conn) {
	w.Helper()
	require.NoError(w, w.srv.ExpireSession(conn.SessionID()))
}

// watched returns the path of each watch that the server stores.
func (w *harness) watched() (paths []string) {
	for _, x := range w.srv.Watches() {
		paths = append(paths, x.Path)
	}
	return paths
}

// requireElapsed asserts that f takes the time want.
func (w *harness) requireElapsed(want time.Duration, f func()) {
	w.Helper()
	bubble.RequireDuration(w, want, f)
}

// doneAt returns a channel that receives the time at which a hold ends.
func doneAt(h *Hold) <-chan time.Time {
	return bubble.Async(func() time.Time { <-h.Done(); return time.Now() })
}

// call is a running or finished call of a method that acquires a lock or leases.
type call struct {
	w      *harness
	conn   *zk.Conn
	cancel context.CancelFunc
	done   chan struct{} // closed when the call has returned
	at     time.Time     // when the call returned
	hold   *Hold
	err    error
}

// startCall calls f in a new goroutine. The context of f is done when the test ends.
func (w *harness) startCall(conn *zk.Conn, f func(context.Context) (*Hold, error)) *call {
	ctx, cancel := context.WithCancel(context.Background())
	a := &call{w: w, conn: conn, cancel: cancel, done: make(chan struct{})}
	w.calls = append(w.calls, a)
	go func() {
		defer close(a.done)
		if a.hold, a.err = f(ctx); a.hold != nil {
			w.recordHold(a.hold)
		}
		a.at = time.Now()
	}()
	return a
}

// lock calls Lock of the mutex, and waits until the contender is in the queue.
func (w *harness) lock(conn *zk.Conn, options ...Option) *call {
	w.Helper()
	a := w.startCall(conn, w.mutex(conn, options...).Lock)
	w.passTime(0)
	return a
}

// read calls RLock, and waits until the contender is in the queue.
func (w *harness) read(conn *zk.Conn, options ...Option) *call {
	w.Helper()
	a := w.startCall(conn, w.rw(conn, options...).RLock)
	w.passTime(0)
	return a
}

// write calls Lock of the RWMutex, and waits until the contender is in the queue.
func (w *harness) write(conn *zk.Conn, options ...Option) *writer {
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
	w.passTime(0)
	return x
}

// writer is a call that acquires a lock for writing.
type writer struct {
	*call
	write *WriteHold
}

// downgrade converts the write lock into a read lock.
func (x *writer) downgrade() {
	x.w.Helper()
	require.NoError(x.w, x.write.Downgrade())
	x.w.mu.Lock()
	defer x.w.mu.Unlock()
	for _, g := range x.w.holds {
		if g.Hold == x.hold && g.downgraded.IsZero() {
			g.downgraded = time.Now()
		}
	}
}

// session returns the session of the contender's connection.
func (a *call) session() int64 { return a.conn.SessionID() }

// path returns the path of the only znode of the contender's session.
func (a *call) path() string {
	a.w.Helper()
	znodes := bubble.Session(a.w, a.w.ensemble, a.conn).Ephemerals
	require.Len(a.w, znodes, 1)
	return znodes[0]
}

// pathAsReader returns the path of the znode after a downgrade.
func (x *writer) pathAsReader() string {
	return strings.NewReplacer("__WRIT__", "__READ__", "__lock__", "__rlock__").Replace(x.hold.Path())
}

// hasReturned reports whether the call has returned, without waiting.
func (a *call) hasReturned() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// requireHolds asserts that the call has returned a hold, and that the lock is still held.
func (a *call) requireHolds() *Hold {
	a.w.Helper()
	require.True(a.w, a.hasReturned(), "still waits")
	require.NoError(a.w, a.err)
	require.NoError(a.w, a.hold.Err())
	return a.hold
}

// requireWaits asserts that the call still waits.
func (a *call) requireWaits() {
	a.w.Helper()
	if a.hasReturned() {
		require.Fail(a.w, "has returned", "%v", a.err)
	}
}

// requireFails asserts that the call has returned an error that wraps want.
func (a *call) requireFails(want error) {
	a.w.Helper()
	require.True(a.w, a.hasReturned(), "still waits")
	require.ErrorIs(a.w, a.err, want)
}

// release releases the hold and asserts that the release is confirmed.
func (a *call) release() {
	a.w.Helper()
	require.NoError(a.w, a.requireHolds().Release())
	a.w.passTime(0)
}

// requireWaiting asserts that all of these contenders wait.
func (w *harness) requireWaiting(all ...*call) {
	w.Helper()
	for _, c := range all {
		c.requireWaits()
	}
}

// requireHolding asserts that all of these contenders hold the lock or their leases.
func (w *harness) requireHolding(all ...*call) {
	w.Helper()
	for _, c := range all {
		c.requireHolds()
	}
}

// requireOnlyZnode asserts that the znode of the hold is the only znode of a contender, and that the session
// of the call owns it.
func (a *call) requireOnlyZnode() {
	a.w.Helper()
	h := a.requireHolds()
	a.w.requireContenders(h.Path())
	stat := a.w.stat(h.Path())
	require.Equal(a.w, a.conn.SessionID(), stat.EphemeralOwner)
	require.Equal(a.w, stat.Czxid, h.Token())
}

// forEachLoss runs f in a separate test for each of the faults, with the given number of servers.
func forEachLoss(t *testing.T, faults []bubble.Fault, servers int, f func(w *harness, l bubble.Fault)) {
	for _, l := range faults {
		t.Run(l.Name, func(t *testing.T) {
			runTest(t, servers, func(w *harness) { f(w, l) })
		})
	}
}

// briefLosses are the faults that lose a request or a reply, but are so short that a hold continues.
var briefLosses = slices.Concat(bubble.ConnectionLost[:2], bubble.SessionMoved)

const timeout = 4 * time.Second // session timeout of the clients

// markers returns the names of the znodes by which holders with a lock-delay mark that they hold the lock.
func (w *harness) markers() (found []string) {
	for _, name := range strings.Fields(w.srv.Tree()) {
		if strings.HasPrefix(name, "held-") {
			found = append(found, name)
		}
	}
	return found
}

// isolate discards all packets of a client, and prevents it from connecting again.
func (w *harness) isolate(conn *zk.Conn) {
	w.srv.Blackhole(zktest.BothWays, conn.SessionID())
	w.srv.Refuse(true)
}

// reconnect lets a client connect again that isolate has separated from the server.
func (w *harness) reconnect(conn *zk.Conn) {
	w.srv.Refuse(false)
	w.srv.Heal(conn.SessionID())
}

// errEnough is the cause with which tests cancel contexts.
var errEnough = errors.New("enough")
