package queue_test

import (
	"cmp"
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

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const (
	dir              = "/queue"
	contenderPattern = dir + "/*" // matches the contenders' znodes
	timeout          = 4 * time.Second
	// moment is at least as long as a contender needs to find out why its znode was deleted.
	moment = bubble.Margin
)

var openACL = zk.WorldACL(zk.PermAll)

// harness is a test of one kind of contenders, in a bubble of testing/synctest. When the test ends, no znodes and
// watches of contenders may remain, and no two contenders may have had their turn at the same time.
type harness struct {
	*testing.T
	kind
	ensemble     *zktest.Ensemble
	srv          *zktest.Server // server 0
	operator     *zk.Conn       // a client that is not a contender
	clients      []*client
	foreignCount int // how often createForeignContender was called

	allowOverlap bool // turns may overlap, because the test causes this
	allowWatches bool // watches may remain, because the test prevents their removal

	mu    sync.Mutex
	turns []*turn
}

// turn is one turn of a contender, with the times at which it has begun and ended.
type turn struct {
	*client
	grant
	from, to time.Time
}

// run runs f in a bubble with an ensemble of servers and a queue that all contenders can use.
func run(t *testing.T, k kind, servers int, f func(h *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		// Wait until requests that the server cannot answer have ended together with their client.
		t.Cleanup(func() { time.Sleep(time.Minute) })
		h := &harness{T: t, kind: k, ensemble: zktest.StartEnsemble(t, servers)}
		t.Cleanup(h.leave)
		h.srv = h.ensemble.Server(0)
		h.operator = h.connect()
		h.create(dir)
		f(h)
		h.leave()
		h.requireContenders()
		h.requireTurnsInOrder()
		if !h.allowWatches {
			require.Empty(h, h.srv.Watches())
		}
	})
}

// forEachKind runs f as a separate test for each kind.
func forEachKind(t *testing.T, kinds []kind, servers int, f func(h *harness)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) { run(t, k, servers, f) })
	}
}

// subtestForEachKind calls forEachKind in a subtest.
func subtestForEachKind(t *testing.T, name string, kinds []kind, servers int, f func(h *harness)) {
	t.Run(name, func(t *testing.T) { forEachKind(t, kinds, servers, f) })
}

// forEachLoss runs f as a separate test for each kind and loss.
func forEachLoss(t *testing.T, losses []bubble.Fault, f func(h *harness, l bubble.Fault)) {
	for _, l := range losses {
		subtestForEachKind(t, l.Name, all, 1, func(h *harness) { f(h, l) })
	}
}

// leave makes all contenders leave, and deletes the contenders that the operator has created.
func (h *harness) leave() {
	h.healNetwork()
	for _, c := range h.clients {
		go c.leave()
	}
	h.advance(timeout)
	for _, path := range h.contenders() {
		if h.statOf(path).EphemeralOwner == h.operator.SessionID() {
			h.remove(path)
		}
	}
	h.advance(0)
}

// healNetwork ends all faults of the network and waits until the clients are connected.
func (h *harness) healNetwork() {
	bubble.EachServer(h.ensemble, func(s *zktest.Server) { s.Refuse(false); s.Heal() })
	h.advance(2 * time.Second)
}

// requireTurnsInOrder requires that turns did not overlap, and that a later turn had a greater token.
func (h *harness) requireTurnsInOrder() {
	h.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.allowOverlap {
		return
	}
	slices.SortStableFunc(h.turns, func(a, b *turn) int { return cmp.Compare(a.Token(), b.Token()) })
	for i, a := range h.turns {
		for _, b := range h.turns[i+1:] {
			if a.client != b.client {
				require.False(h, a.to.IsZero() || a.to.After(b.from), "the turn with token %d has lasted until %v, and the turn with token %d has begun at %v", a.Token(), a.to, b.Token(), b.from)
			}
		}
	}
}

// advance lets time pass, and waits until all goroutines are blocked.
func (h *harness) advance(d time.Duration) { bubble.Advance(d) }

// connect opens a session at server 0.
func (h *harness) connect() *zk.Conn { return h.connectTo(0) }

func (h *harness) connectTo(server int) *zk.Conn {
	h.Helper()
	return bubble.ConnectFrom(h, h.ensemble, server, timeout)
}

// disconnect breaks a client's connection. No client can connect until reconnect.
func (h *harness) disconnect(conn *zk.Conn) { bubble.Disconnect(h.ensemble, conn) }

// reconnect lets clients connect again, and waits until all are connected.
func (h *harness) reconnect() { bubble.Reconnect(h.ensemble) }

// drop breaks a client's connection. The client can connect again at once.
func (h *harness) drop(conn *zk.Conn) {
	bubble.EachServer(h.ensemble, func(s *zktest.Server) { s.DropConnections(conn.SessionID()) })
}

// isolate discards all packets of a client, and lets no client connect.
func (h *harness) isolate(conn *zk.Conn) {
	h.srv.Blackhole(zktest.BothWays, conn.SessionID())
	h.srv.Refuse(true)
}

// expire makes the servers expire the session of a client.
func (h *harness) expire(conn *zk.Conn) {
	h.Helper()
	require.NoError(h, h.srv.ExpireSession(conn.SessionID()))
}

// create creates a persistent znode.
func (h *harness) create(path string) {
	h.Helper()
	_, err := h.operator.Create(path, nil, 0, openACL)
	require.NoError(h, err)
}

// remove deletes a znode.
func (h *harness) remove(path string) {
	h.Helper()
	require.NoError(h, h.operator.Delete(path, -1))
}

// set writes a znode's data.
func (h *harness) set(path, data string) {
	h.Helper()
	_, err := h.operator.Set(path, []byte(data), -1)
	require.NoError(h, err)
	h.advance(0)
}

// statOf returns the Stat of a znode, or nil if it does not exist.
func (h *harness) statOf(path string) *zk.Stat {
	h.Helper()
	found, stat, err := h.operator.Exists(path)
	require.NoError(h, err)
	if !found {
		return nil
	}
	return stat
}

// createForeignContender creates the znode of a contender of another program, with a name as Curator uses, in the
// session of the operator, and returns the path.
func (h *harness) createForeignContender() string {
	h.Helper()
	h.foreignCount++
	return h.createSequential(fmt.Sprintf("_c_00000000-0000-4000-8000-%012d%s", h.foreignCount, h.base))
}

// createSequential creates an ephemeral sequential znode whose name begins with prefix.
func (h *harness) createSequential(prefix string) string {
	h.Helper()
	path, err := h.operator.Create(path.Join(dir, prefix), []byte(h.data), zk.FlagEphemeral|zk.FlagSequence, openACL)
	require.NoError(h, err)
	return path
}

// contenders returns the paths of the ephemeral children of the queue, ordered by sequence number.
func (h *harness) contenders() (paths []string) {
	for _, s := range h.srv.Sessions() {
		for _, p := range s.Ephemerals {
			if strings.HasPrefix(p, dir+"/") {
				paths = append(paths, p)
			}
		}
	}
	number := func(p string) string { return p[len(p)-10:] }
	slices.SortFunc(paths, func(a, b string) int { return cmp.Compare(number(a), number(b)) })
	return paths
}

// requireContenders requires that the znodes of contenders are exactly the znodes at paths.
func (h *harness) requireContenders(paths ...string) {
	h.Helper()
	require.ElementsMatch(h, paths, h.contenders())
}

// created returns the paths of all znodes that contenders have created so far.
func (h *harness) created() []string { return bubble.Created(h.srv, dir) }

// cutAfterCreate makes the server apply the first create of a contender, and close the connection instead of
// sending the reply. No client can connect until reconnect.
func (h *harness) cutAfterCreate() *zktest.Hook {
	return h.srv.After(zktest.Match{Path: contenderPattern, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
		h.srv.Refuse(true)
		return zktest.Cut(q)
	})
}

// watched returns the paths of the queue and of its children that are watched, once for each watch at server 0.
func (h *harness) watched() (paths []string) {
	for _, x := range h.srv.Watches() {
		if strings.HasPrefix(x.Path, dir) {
			paths = append(paths, x.Path)
		}
	}
	return paths
}

// requireRan requires that the server has called the hooks.
func (h *harness) requireRan(hooks ...*zktest.Hook) {
	h.Helper()
	bubble.RequireRun(h, hooks...)
}
