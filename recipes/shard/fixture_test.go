package shard

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	dir     = "/app/shards"
	timeout = bubble.SessionTimeout
)

var openACL = zk.WorldACL(zk.PermAll)

// bufferSize is the length of the reply to a list of thousands of shards.
var bufferSize = zk.WithMaxBufferSize(4 << 20)

func connect(w *bubble.Test) *zk.Conn { return w.Connect(bufferSize) }

// newClient does not wait until the session is established.
func newClient(w *bubble.Test) *bubble.Client {
	c, err := bubble.NewClient(w.Server, timeout, bufferSize)
	require.NoError(w, err)
	return c
}

func newGroup(w *bubble.Test, conn *zk.Conn, opts ...Option) *Group {
	g, err := NewGroup(conn, dir, append([]Option{recipes.WithSessionTimeout(timeout)}, opts...)...)
	require.NoError(w, err)
	return g
}

func setShards(w *bubble.Test, n int, change ...func(*Spec)) {
	_, err := newGroup(w, connect(w)).Update(w.Context(), func(s *Spec) error {
		s.Shards = names("s", n)
		for _, f := range change {
			f(s)
		}
		return nil
	})
	require.NoError(w, err)
}

func update(w *bubble.Test, f func(*Spec)) {
	_, err := newGroup(w, connect(w)).Update(w.Context(), func(s *Spec) error { f(s); return nil })
	require.NoError(w, err)
}

// recorder records who owns which shard, as the functions of Run observe it. It fails the test if a
// shard is granted while an earlier grant of it is valid.
type recorder struct {
	w      *bubble.Test
	mu     sync.Mutex
	grants map[string]*Shard          // the newest grants, by shard
	owners map[string]string          // their members, by shard
	works  map[string]context.Context // the contexts of the functions that run, by shard
	count  int                        // the number of grants
}

func newRecorder(w *bubble.Test) *recorder {
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
	plan, err := newGroup(r.w, connect(r.w)).Plan(r.w.Context())
	require.NoError(r.w, err)
	require.Equal(r.w, r.current(), plan.Owners)
	require.Empty(r.w, plan.Moves)
}

// worker is a program with a member that runs.
type worker struct {
	id     string
	client *bubble.Client
	stop   context.CancelFunc
	done   <-chan error
}

// start starts a member that works on its shards, and needs the time drain to finish.
func (r *recorder) start(id string, drain time.Duration, opts ...Option) *worker {
	client := newClient(r.w)
	bubble.Advance(0)
	k := r.startOn(client.Conn, id, drain, opts...)
	k.client = client
	return k
}

func (r *recorder) startOn(conn *zk.Conn, id string, drain time.Duration, opts ...Option) *worker {
	ctx, stop := context.WithCancel(context.Background())
	g := newGroup(r.w, conn, opts...)
	k := &worker{id: id, stop: stop}
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
