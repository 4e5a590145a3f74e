package cache

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const timeout = 4 * time.Second // of sessions

var open = zk.WorldACL(zk.PermAll)

// connect opens a session and lets it come about. Call it in a bubble.
func connect(t *testing.T, srv *zktest.Server) *zk.Conn {
	conn, _, err := srv.Connect(timeout, zk.WithMaxBufferSize(64<<10))
	require.NoError(t, err)
	synctest.Wait()
	return conn
}

// start makes a cache and closes it when the test ends.
func start(t *testing.T, conn *zk.Conn, path string, scope Scope, opts ...recipes.Option) *Cache {
	c, err := New(conn, path, scope, append([]recipes.Option{recipes.WithSessionTimeout(timeout)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// filled makes a cache, waits until it is filled and takes what it has told.
func filled(t *testing.T, conn *zk.Conn, path string, scope Scope, opts ...recipes.Option) (*Cache, *reader) {
	c := start(t, conn, path, scope, opts...)
	r := read(t, c)
	<-c.Filled()
	synctest.Wait()
	return c, r
}

func create(t *testing.T, conn *zk.Conn, path, data string) {
	t.Helper()
	_, err := conn.Create(path, []byte(data), 0, open)
	require.NoError(t, err)
}

func set(t *testing.T, conn *zk.Conn, path, data string) {
	t.Helper()
	_, err := conn.Set(path, []byte(data), -1)
	require.NoError(t, err)
}

func remove(t *testing.T, conn *zk.Conn, path string) {
	t.Helper()
	require.NoError(t, conn.Delete(path, -1))
}

// reader receives events and keeps what they say: a replica of the cache. It
// notes what no order of events may do.
type reader struct {
	mu     sync.Mutex
	told   []string // since the last call of take
	nodes  map[string]Znode
	czxids map[string]int64 // the greatest that was told
	stale  bool
	faults []string
	ended  chan struct{}
}

func newReader() *reader {
	return &reader{nodes: map[string]Znode{}, czxids: map[string]int64{}, stale: true, ended: make(chan struct{})}
}

func read(t *testing.T, c *Cache) *reader {
	r := newReader()
	go func() {
		defer close(r.ended)
		for e := range c.Events() {
			r.apply(c, e)
		}
	}()
	t.Cleanup(func() {
		c.Close()
		<-r.ended
		require.Empty(t, r.faults)
	})
	return r
}

func (r *reader) fault(format string, args ...any) {
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

// apply takes an event in, and checks it against those before.
func (r *reader) apply(c *Cache, e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, text(e))
	known, ok := r.nodes[e.Path]
	_, parent := r.nodes[path.Dir(e.Path)]
	switch e.Kind {
	case Created:
		switch {
		case ok:
			r.fault("%s created while it is there", e.Path)
		case e.Path != c.path && !parent:
			r.fault("%s created before its parent", e.Path)
		case e.Node.Stat.Czxid <= r.czxids[e.Path]:
			r.fault("%s created with a czxid that was told before", e.Path)
		}
		r.nodes[e.Path], r.czxids[e.Path] = e.Node, e.Node.Stat.Czxid
	case Changed:
		switch {
		case !ok:
			r.fault("%s changed while it is not there", e.Path)
		case e.Node.Stat.Czxid != known.Stat.Czxid || e.Old.Stat.Czxid != known.Stat.Czxid || e.Old.Stat.Mzxid != known.Stat.Mzxid:
			r.fault("%s changed from what it was not", e.Path)
		case e.Node.Stat.Mzxid < known.Stat.Mzxid || e.Node.Stat.Mzxid == known.Stat.Mzxid && (e.Node.Err == nil) == (known.Err == nil):
			r.fault("%s changed backwards, or not at all", e.Path)
		}
		r.nodes[e.Path] = e.Node
	case Deleted:
		if !ok || e.Old.Stat.Czxid != known.Stat.Czxid {
			r.fault("%s deleted while it is not there", e.Path)
		}
		for p := range r.nodes {
			if path.Dir(p) == e.Path {
				r.fault("%s deleted before %s", e.Path, p)
			}
		}
		delete(r.nodes, e.Path)
	case Stale, Fresh:
		if r.stale != (e.Kind == Fresh) {
			r.fault("%v twice", e.Kind)
		}
		r.stale = e.Kind == Stale
	}
	if now, ok := c.Get(e.Path); e.Kind <= Deleted && ok && (now.Stat.Czxid < e.Node.Stat.Czxid || now.Stat.Mzxid < e.Node.Stat.Mzxid) {
		r.fault("%s in memory is older than what was told", e.Path)
	}
}

// text is an event as the tests write it.
func text(e Event) string {
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

// take returns what was told since it was last called.
func (r *reader) take() []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	told := r.told
	r.told = nil
	return told
}

// sameAsMemory compares what the events have said with memory.
func (r *reader) sameAsMemory(c *Cache) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	memory := map[string]Znode{}
	for z := range c.All() {
		memory[z.Path] = z
	}
	for _, p := range slices.Sorted(maps.Keys(memory)) {
		if err := equal(r.nodes[p], memory[p], false); err != nil {
			return fmt.Errorf("told %s: %w", p, err)
		}
	}
	if len(memory) != len(r.nodes) || len(memory) != c.Len() {
		return fmt.Errorf("told of %d znodes, %d in memory, Len %d", len(r.nodes), len(memory), c.Len())
	}
	return nil
}

func equal(a, b Znode, children bool) error {
	if !children {
		takeChildren(&a.Stat, &b.Stat)
	}
	a.Stat.Aversion = b.Stat.Aversion
	switch {
	case string(a.Data) != string(b.Data):
		return fmt.Errorf("data %q, not %q", a.Data, b.Data)
	case a.Stat != b.Stat:
		return fmt.Errorf("stat %+v, not %+v", a.Stat, b.Stat)
	case (a.Err == nil) != (b.Err == nil):
		return fmt.Errorf("err %v, not %v", a.Err, b.Err)
	}
	return nil
}

// sameAsServer compares memory with what a read of the whole tree finds.
func sameAsServer(conn *zk.Conn, c *Cache, scope Scope) error {
	seen := 0
	var visit func(p string, depth Scope) error
	visit = func(p string, depth Scope) error {
		data, stat, err := conn.Get(p)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		seen++
		z, ok := c.Get(p)
		if !ok {
			return fmt.Errorf("%s is not in memory", p)
		}
		if err := equal(z, Znode{Data: data, Stat: *stat}, depth < scope); err != nil {
			return fmt.Errorf("%s in memory has %w", p, err)
		}
		if depth == scope {
			return nil
		}
		names, _, err := conn.Children(p)
		if err != nil {
			return err
		}
		slices.Sort(names)
		if kept, _ := c.Children(p); !slices.Equal(kept, names) {
			return fmt.Errorf("%s has children %q, not %q", p, kept, names)
		}
		for _, name := range names {
			if err := visit(path.Join(p, name), depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	if err := visit(c.path, 0); err != nil && (!errors.Is(err, zk.ErrNoNode) || seen > 0) {
		return err
	}
	if seen != c.Len() {
		return fmt.Errorf("%d znodes in memory, %d at the server", c.Len(), seen)
	}
	return nil
}

// requests lists what a session sends while f runs: neither pings nor events.
func requests(srv *zktest.Server, session int64, f func()) zktest.Log {
	begin := len(srv.Log())
	f()
	synctest.Wait()
	return srv.Log()[begin:].Session(session).Requests()
}

// channels counts the watch channels that the client library holds.
func channels(conn *zk.Conn) int {
	synctest.Wait() // the client does not change them meanwhile
	v := reflect.ValueOf(conn).Elem().FieldByName("watchers")
	n := 0
	for it := v.MapRange(); it.Next(); {
		n += it.Value().Len()
	}
	return n
}

// watchesOf lists the watches of a session at the server.
func watchesOf(srv *zktest.Server, session int64) []string {
	var list []string
	for _, w := range srv.Watches() {
		if w.Session == session {
			list = append(list, w.Kind.String()+" "+w.Path)
		}
	}
	return list
}
