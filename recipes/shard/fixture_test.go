package shard

import (
	"context"
	"fmt"
	"maps"
	"net"
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

const (
	dir     = "/app/shards"
	timeout = 4 * time.Second
)

var openACL = zk.WorldACL(zk.PermAll)

// fixture is a test in a bubble with a server.
type fixture struct {
	*testing.T
	srv *zktest.Server
}

func runTest(t *testing.T, f func(w fixture)) {
	synctest.Test(t, func(t *testing.T) { f(fixture{t, zktest.Start(t)}) })
}

func (w fixture) connect() *zk.Conn {
	return bubble.Connect(w, w.srv, timeout, zk.WithMaxBufferSize(4<<20))
}

// connectSlowly connects to a server with latency.
func (w fixture) connectSlowly() *zk.Conn {
	conn, _, err := w.srv.Connect(timeout, zk.WithMaxBufferSize(4<<20))
	require.NoError(w, err)
	bubble.Advance(20 * time.Millisecond)
	require.Equal(w, zk.StateHasSession, conn.State())
	return conn
}

func (w fixture) group(conn *zk.Conn, opts ...Option) *Group {
	g, err := NewGroup(conn, dir, append([]Option{recipes.WithSessionTimeout(timeout)}, opts...)...)
	require.NoError(w, err)
	return g
}

func (w fixture) setShards(n int, change ...func(*Spec)) {
	_, err := w.group(w.connect()).Update(w.Context(), func(s *Spec) error {
		s.Shards = names("s", n)
		for _, f := range change {
			f(s)
		}
		return nil
	})
	require.NoError(w, err)
}

func (w fixture) update(f func(*Spec)) {
	_, err := w.group(w.connect()).Update(w.Context(), func(s *Spec) error { f(s); return nil })
	require.NoError(w, err)
}

// settle waits until everything in progress has ended. The time is not a multiple of the intervals of checks of
// sessions: a request in flight while the connection is closed can hang the client library.
func settle() { bubble.Advance(30*time.Second + time.Millisecond) }

// recorder records who owns which shard, as the functions of Run observe it. It fails the test if a
// shard is granted while an earlier grant of it is valid.
type recorder struct {
	w      fixture
	mu     sync.Mutex
	grants map[string]*Shard          // the newest grants, by shard
	owners map[string]string          // their members, by shard
	works  map[string]context.Context // of their functions, by shard
	count  int                        // the number of grants
}

func (w fixture) recorder() *recorder {
	return &recorder{w: w, grants: map[string]*Shard{}, owners: map[string]string{}, works: map[string]context.Context{}}
}

func (r *recorder) grant(ctx context.Context, id string, s *Shard) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.Err() != nil {
		return // it was lost before it was received
	}
	r.count++
	if before := r.grants[s.Name()]; before != nil {
		if before.Err() == nil {
			r.w.Errorf("%s is granted to %s and is held by %s", s.Name(), id, r.owners[s.Name()])
		}
		if s.Token() <= before.Token() {
			r.w.Errorf("the token of %s does not increase", s.Name())
		}
	}
	if before := r.works[s.Name()]; before != nil && before.Err() == nil {
		r.w.Errorf("%s works on %s and is not told to stop, and %s begins", r.owners[s.Name()], s.Name(), id)
	}
	r.grants[s.Name()], r.owners[s.Name()], r.works[s.Name()] = s, id, ctx
}

// current returns the owners, by shard.
func (r *recorder) current() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := map[string]string{}
	for name, s := range r.grants {
		if s.Err() == nil {
			now[name] = r.owners[name]
		}
	}
	return now
}

// granting returns the number of shards that have been granted.
func (r *recorder) granting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.grants)
}

// asked returns the number of shards that are held although their release was requested.
func (r *recorder) asked() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.grants {
		if s.Moved() != nil && s.Err() == nil {
			n++
		}
	}
	return n
}

func (r *recorder) loads() map[string]int { return Plan{Owners: r.current()}.loads() }

func (r *recorder) granted(name string) *Shard {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.grants[name]
}

// requireEven requires that all shards are owned by these members, in numbers that differ by one at
// most, and that the plan says the same.
func (r *recorder) requireEven(shards int, ids ...string) {
	r.w.Helper()
	require.Len(r.w, r.current(), shards)
	loads := r.loads()
	require.ElementsMatch(r.w, ids, slices.Collect(maps.Keys(loads)))
	require.LessOrEqual(r.w, slices.Max(slices.Collect(maps.Values(loads)))-slices.Min(slices.Collect(maps.Values(loads))), 1, "%v", loads)
	plan, err := r.w.group(r.w.connect()).Plan(r.w.Context())
	require.NoError(r.w, err)
	require.Equal(r.w, r.current(), plan.Owners)
	require.Empty(r.w, plan.Moves)
}

// worker is a program with a member that runs.
type worker struct {
	id      string
	conn    *zk.Conn
	network *network
	stop    context.CancelFunc
	done    <-chan error
}

// start starts a member that works on its shards, and needs the time drain to finish.
func (r *recorder) start(id string, drain time.Duration, opts ...Option) *worker {
	n := &network{}
	dial := r.w.srv.Dialer()
	conn := bubble.Connect(r.w, r.w.srv, timeout, zk.WithMaxBufferSize(4<<20), zk.WithDialer(func(network, address string, limit time.Duration) (net.Conn, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.down {
			return nil, net.ErrClosed
		}
		link, err := dial(network, address, limit)
		if err == nil {
			n.link = link
		}
		return link, err
	}))
	k := r.startOn(conn, id, drain, opts...)
	k.network = n
	return k
}

// network is the network of one program.
type network struct {
	mu   sync.Mutex
	down bool
	link net.Conn // the newest connection
}

// crash makes the program unreachable, in any state of its connection: it may not have a session yet, by which
// the server could close it.
func (n *network) crash() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = true
	n.link.Close()
}

// repair ends crash.
func (n *network) repair() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = false
}

func (r *recorder) startOn(conn *zk.Conn, id string, drain time.Duration, opts ...Option) *worker {
	ctx, stop := context.WithCancel(context.Background())
	g := r.w.group(conn, opts...)
	k := &worker{id: id, conn: conn, stop: stop}
	k.done = bubble.Async(func() error {
		return g.Run(ctx, id, func(ctx context.Context, s *Shard) error {
			r.grant(ctx, id, s)
			<-ctx.Done()
			if s.Err() == nil {
				time.Sleep(drain)
			}
			return context.Cause(ctx)
		})
	})
	return k
}

// leave ends the member and waits for it.
func (k *worker) leave(t testing.TB) {
	k.stop()
	require.NoError(t, <-k.done)
}

func numbered(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprint("m", i))
	}
	return ids
}
