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

// bufferSize is large enough for a listing of thousands of shards.
var bufferSize = zk.WithMaxBufferSize(4 << 20)

func connect(w *bubble.Test) *zk.Conn { return w.Connect(bufferSize) }

// newClient returns a client, and does not wait until the client has a session.
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
		s.Shards = numberedNames("s", n)
		for _, f := range change {
			f(s)
		}
		return nil
	})
	require.NoError(w, err)
}

func updateSpec(w *bubble.Test, f func(*Spec)) {
	_, err := newGroup(w, connect(w)).Update(w.Context(), func(s *Spec) error { f(s); return nil })
	require.NoError(w, err)
}

// recorder records which member owns which shard, by the calls of the functions that were passed to Run. It fails
// the test if a shard is granted while an earlier grant of the same shard is valid.
type recorder struct {
	w      *bubble.Test
	mu     sync.Mutex
	grants map[string]*Shard          // the newest grant of each shard
	owners map[string]string          // the member that has the newest grant, for each shard
	works  map[string]context.Context // the context of the function that runs for a shard
	count  int                        // the number of grants
}

func newRecorder(w *bubble.Test) *recorder {
	return &recorder{w: w, grants: map[string]*Shard{}, owners: map[string]string{}, works: map[string]context.Context{}}
}

func (r *recorder) grant(ctx context.Context, id string, s *Shard) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.Err() != nil {
		return // ignore a shard that was lost before the function was called
	}
	r.count++
	if before := r.grants[s.Name()]; before != nil {
		if before.Err() == nil {
			r.w.Errorf("shard %s is granted to %s while %s holds it", s.Name(), id, r.owners[s.Name()])
		}
		if s.Token() <= before.Token() {
			r.w.Errorf("the token of %s does not increase", s.Name())
		}
	}
	if before := r.works[s.Name()]; before != nil && before.Err() == nil {
		r.w.Errorf("%s still works on %s and was not told to stop when %s begins", r.owners[s.Name()], s.Name(), id)
	}
	r.grants[s.Name()], r.owners[s.Name()], r.works[s.Name()] = s, id, ctx
}

// currentOwners returns the owners, by shard.
func (r *recorder) currentOwners() map[string]string {
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

// countGranted returns the number of shards that were granted at least once.
func (r *recorder) countGranted() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.grants)
}

// countRequested returns the number of shards that are still held although their release was requested.
func (r *recorder) countRequested() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.grants {
		if s.Moved() != nil && s.Err() == nil {
			n++
		}
	}
	return n
}

func (r *recorder) loads() map[string]int { return Plan{Owners: r.currentOwners()}.loads() }

func (r *recorder) grantOf(name string) *Shard {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.grants[name]
}

// requireEven requires that the members with the given IDs, and no others, own all shards, that their numbers of
// shards differ by at most one, and that the plan contains the same owners and no moves.
func (r *recorder) requireEven(shards int, ids ...string) {
	r.w.Helper()
	require.Len(r.w, r.currentOwners(), shards)
	loads := r.loads()
	require.ElementsMatch(r.w, ids, slices.Collect(maps.Keys(loads)))
	require.LessOrEqual(r.w, slices.Max(slices.Collect(maps.Values(loads)))-slices.Min(slices.Collect(maps.Values(loads))), 1, "%v", loads)
	plan, err := newGroup(r.w, connect(r.w)).Plan(r.w.Context())
	require.NoError(r.w, err)
	require.Equal(r.w, r.currentOwners(), plan.Owners)
	require.Empty(r.w, plan.Moves)
}

// worker is a program with a running member.
type worker struct {
	id     string
	client *bubble.Client
	stop   context.CancelFunc
	done   <-chan error
}

// start starts a member on a new connection. After the release of a shard is requested, the member's
// function returns after the time drain.
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

// leave stops the member and waits until it has left.
func (k *worker) leave(t testing.TB) {
	k.stop()
	require.NoError(t, <-k.done)
}

func numberedIDs(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprint("m", i))
	}
	return ids
}
