package cache

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var openACL = zk.WorldACL(zk.PermAll)

// runInBubble runs f in a bubble, with the connection of a cache and an operator that changes znodes.
func runInBubble(t *testing.T, f func(h *bubble.Test), opts ...zktest.Option) {
	t.Helper()
	bubble.Run(t, func(h *bubble.Test) {
		h.Conn, h.Operator = h.Connect(), h.Connect()
		f(h)
	}, opts...)
}

// cacheSession returns the session of the cache.
func cacheSession(h *bubble.Test) int64 { return h.Conn.SessionID() }

// openCache returns a cache that is closed when the test ends.
func openCache(h *bubble.Test, path string, scope Scope, opts ...Option) *Cache {
	c, err := New(h.Conn, path, scope, append([]Option{recipes.WithSessionTimeout(bubble.SessionTimeout)}, opts...)...)
	require.NoError(h, err)
	h.Cleanup(func() { require.NoError(h, c.Close()) })
	return c
}

// openFilled opens a cache and waits until the cache is filled. It returns the cache, and a replica to which it
// applies the events of the cache.
func openFilled(h *bubble.Test, path string, scope Scope, opts ...Option) (*Cache, *replica) {
	c := openCache(h, path, scope, opts...)
	r := newReplica()
	go func() {
		defer close(r.ended)
		for e := range c.Events() {
			r.apply(c, e)
		}
	}()
	h.Cleanup(func() {
		c.Close()
		<-r.ended
		require.Empty(h, r.violations)
	})
	<-c.Filled()
	synctest.Wait()
	return c, r
}

// create creates znodes without data.
func create(h *bubble.Test, paths ...string) {
	h.Helper()
	for _, p := range paths {
		createWith(h, p, "")
	}
}

func createWith(h *bubble.Test, path, data string) {
	h.Helper()
	_, err := h.Operator.Create(path, []byte(data), 0, openACL)
	require.NoError(h, err)
}

func set(h *bubble.Test, path, data string) {
	h.Helper()
	_, err := h.Operator.Set(path, []byte(data), -1)
	require.NoError(h, err)
}

func remove(h *bubble.Test, paths ...string) {
	h.Helper()
	for _, p := range paths {
		require.NoError(h, h.Operator.Delete(p, -1))
	}
}

// reconnect breaks the connection of a cache, runs f while it is down, and waits until the cache is
// fresh again.
func reconnect(h *bubble.Test, c *Cache, f func()) {
	h.Server.Before(zktest.Match{Op: zktest.OpConnect, Session: cacheSession(h), Nth: 1}, func(*zktest.Request) zktest.Verdict {
		f()
		return zktest.Verdict{}
	})
	h.Server.DropConnections(cacheSession(h))
	time.Sleep(5 * time.Second)
	synctest.Wait()
	require.True(h, c.Fresh())
}

// requestsDuring returns the requests that the session of the cache sends while f runs, without pings and
// events.
func requestsDuring(h *bubble.Test, f func()) zktest.Log {
	begin := len(h.Server.Log())
	f()
	synctest.Wait()
	return h.Server.Log()[begin:].Session(cacheSession(h)).Requests()
}

// countRequests returns how many requests with the operation op were sent for a path.
func countRequests(h *bubble.Test, op zktest.Op, path string) int {
	return h.Server.Log().Filter(func(e zktest.Entry) bool { return e.Op == op && e.Path == path }).Count()
}

// watchedPaths returns the watches that the server stores for the session of the cache.
func watchedPaths(h *bubble.Test) []string {
	var list []string
	for _, w := range h.Server.Watches() {
		if w.Session == cacheSession(h) {
			list = append(list, w.Kind.String()+" "+w.Path)
		}
	}
	return list
}

// countChannels returns how many channels the client library stores for the watches of the cache.
func countChannels(h *bubble.Test) int { return bubble.Watches(h.Conn) }

// replica is a map of znodes to which a test applies the events of a cache. It verifies that each event can follow
// the previous ones.
type replica struct {
	mu         sync.Mutex
	events     []string // the events since the last call of takeEvents
	nodes      map[string]Znode
	czxids     map[string]int64 // the greatest czxid of each path
	stale      bool
	violations []string
	ended      chan struct{}
}

func newReplica() *replica {
	return &replica{nodes: map[string]Znode{}, czxids: map[string]int64{}, stale: true, ended: make(chan struct{})}
}

func (r *replica) addViolation(format string, args ...any) {
	r.violations = append(r.violations, fmt.Sprintf(format, args...))
}

// apply applies an event, and verifies that it can follow the previous events.
func (r *replica) apply(c *Cache, e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, eventText(e))
	known, ok := r.nodes[e.Path]
	_, hasParent := r.nodes[path.Dir(e.Path)]
	switch e.Kind {
	case Created:
		switch {
		case ok:
			r.addViolation("%s created, but it exists", e.Path)
		case e.Path != c.path && !hasParent:
			r.addViolation("%s created before its parent", e.Path)
		// Ignore the czxid 0: the Stat of the event is unknown if no read was answered, and znodes of a new server
		// have the czxid 0.
		case e.Node.Stat.Czxid <= r.czxids[e.Path] && e.Node.Stat.Czxid != 0:
			r.addViolation("%s created with a czxid that was reported before", e.Path)
		}
		r.nodes[e.Path], r.czxids[e.Path] = e.Node, e.Node.Stat.Czxid
	case Changed:
		switch {
		case !ok:
			r.addViolation("%s changed, but it does not exist", e.Path)
		case e.Node.Stat.Czxid != known.Stat.Czxid || e.Old.Stat.Czxid != known.Stat.Czxid || e.Old.Stat.Mzxid != known.Stat.Mzxid:
			r.addViolation("%s changed from a state that was not reported", e.Path)
		case e.Node.Stat.Mzxid < known.Stat.Mzxid || e.Node.Stat.Mzxid == known.Stat.Mzxid && (e.Node.Err == nil) == (known.Err == nil):
			r.addViolation("%s changed to an older or to the same state", e.Path)
		}
		r.nodes[e.Path] = e.Node
	case Deleted:
		if !ok || e.Old.Stat.Czxid != known.Stat.Czxid {
			r.addViolation("%s deleted, but it does not exist", e.Path)
		}
		for p := range r.nodes {
			if path.Dir(p) == e.Path {
				r.addViolation("%s deleted before %s", e.Path, p)
			}
		}
		delete(r.nodes, e.Path)
	case Stale, Fresh:
		if r.stale != (e.Kind == Fresh) {
			r.addViolation("two %v events follow each other", e.Kind)
		}
		r.stale = e.Kind == Stale
	}
	if now, ok := c.Get(e.Path); e.Kind <= Deleted && ok && (now.Stat.Czxid < e.Node.Stat.Czxid || now.Stat.Mzxid < e.Node.Stat.Mzxid) {
		r.addViolation("%s in the cache is older than in the event", e.Path)
	}
}

// eventText returns an event as the tests write it, for example "created /a=data", with " !" at the
// end if the event has an error.
func eventText(e Event) string {
	switch e.Kind {
	case Created, Changed:
		s := fmt.Sprintf("%v %s=%s", e.Kind, e.Path, e.Node.Data)
		if e.Node.Err != nil {
			s += " !"
		}
		return s
	case Deleted:
		return fmt.Sprintf("%v %s", e.Kind, e.Path)
	}
	return e.Kind.String()
}

// takeEvents returns the events since its last call.
func (r *replica) takeEvents() []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.events
	r.events = nil
	return events
}

// compareWithCache returns an error if the replica differs from the cache.
func (r *replica) compareWithCache(c *Cache) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	cached := map[string]Znode{}
	for z := range c.All() {
		cached[z.Path] = z
	}
	for _, p := range slices.Sorted(maps.Keys(cached)) {
		if err := compareZnodes(r.nodes[p], cached[p], false); err != nil {
			return fmt.Errorf("%s in the events: %w", p, err)
		}
	}
	if len(cached) != len(r.nodes) || len(cached) != c.Len() {
		return fmt.Errorf("the events contain %d znodes, the cache contains %d, and Len returns %d", len(r.nodes), len(cached), c.Len())
	}
	return nil
}

// compareZnodes returns an error if two states of a znode differ. It compares the fields of the Stat that describe
// the children only if withChildren is set.
func compareZnodes(a, b Znode, withChildren bool) error {
	if !withChildren {
		copyChildrenStat(&a.Stat, &b.Stat)
	}
	a.Stat.Aversion = b.Stat.Aversion
	switch {
	case string(a.Data) != string(b.Data):
		return fmt.Errorf("data differs: %q and %q", a.Data, b.Data)
	case a.Stat != b.Stat:
		return fmt.Errorf("stats differ: %+v and %+v", a.Stat, b.Stat)
	case (a.Err == nil) != (b.Err == nil):
		return fmt.Errorf("errors differ: %v and %v", a.Err, b.Err)
	}
	return nil
}

// compareWithServer returns an error if the cache differs from a read of the whole tree.
func compareWithServer(conn *zk.Conn, c *Cache, scope Scope) error {
	found := 0
	var visit func(p string, depth Scope) error
	visit = func(p string, depth Scope) error {
		data, stat, err := conn.Get(p)
		if err != nil {
			return fmt.Errorf("read %s from the server: %w", p, err)
		}
		found++
		z, ok := c.Get(p)
		if !ok {
			return fmt.Errorf("%s is not in the cache", p)
		}
		if err := compareZnodes(z, Znode{Data: data, Stat: *stat}, depth < scope); err != nil {
			return fmt.Errorf("%s in the cache: %w", p, err)
		}
		if depth == scope {
			return nil
		}
		names, _, err := conn.Children(p)
		if err != nil {
			return err
		}
		slices.Sort(names)
		if cached, _ := c.Children(p); !slices.Equal(cached, names) {
			return fmt.Errorf("%s has the children %q in the cache, not %q", p, cached, names)
		}
		for _, name := range names {
			if err := visit(path.Join(p, name), depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	if err := visit(c.path, 0); err != nil && (!errors.Is(err, zk.ErrNoNode) || found > 0) {
		return err
	}
	if found != c.Len() {
		return fmt.Errorf("the cache contains %d znodes, and the server %d", c.Len(), found)
	}
	return nil
}

// requireEqual requires that the cache, its events and the server agree.
func requireEqual(h *bubble.Test, c *Cache, r *replica, scope Scope) {
	h.Helper()
	synctest.Wait()
	require.NoError(h, compareWithServer(h.Operator, c, scope))
	require.NoError(h, r.compareWithCache(c))
}
