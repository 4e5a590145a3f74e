package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// TestRun_ShardsAreDivided checks that each shard belongs to its member in the plan, and that no more
// shards than necessary move when members join, leave and crash.
func TestRun_ShardsAreDivided(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		r := newRecorder(w)
		setShards(w, 20)
		a := r.start("a", 100*time.Millisecond)
		bubble.Settle()
		r.requireEven(20, "a")
		require.Equal(w, 20, r.count)
		b := r.start("b", 100*time.Millisecond)
		bubble.Settle()
		r.requireEven(20, "a", "b")
		require.Equal(w, 30, r.count)
		c := r.start("c", 100*time.Millisecond)
		bubble.Settle()
		r.requireEven(20, "a", "b", "c")
		require.Equal(w, 36, r.count)
		a.leave(w) // the member a is the leader
		bubble.Settle()
		r.requireEven(20, "b", "c")
		require.Equal(w, 43, r.count)
		b.leave(w)
		c.leave(w)
		require.Empty(w, r.currentOwners())
	})
}

// TestRun_StartTogether checks that no shards move when members that start together join at slightly different times.
func TestRun_StartTogether(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		r := newRecorder(w)
		setShards(w, 20)
		var workers []*worker
		for _, id := range numberedIDs(4) {
			workers = append(workers, r.start(id, 0))
			bubble.Advance(150 * time.Millisecond)
		}
		bubble.Settle()
		r.requireEven(20, numberedIDs(4)...)
		require.Equal(w, 20, r.count)
		for _, k := range workers {
			k.leave(w)
		}
	})
}

// TestRun_HandOverNamesReason checks that the old and the new owner learn why a shard moves, that the new
// owner starts after the old owner has finished, and that the shard is held until the function returns.
func TestRun_HandOverNamesReason(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		setShards(w, 2)
		type span struct {
			id, name      string
			reason        Reason
			begin, finish time.Time
			token         int64
			moved         *MovedError
		}
		spans := make(chan span, 100)
		run := func(id string) (stop func()) {
			ctx, cancel := context.WithCancel(context.Background())
			done := bubble.Async(func() error {
				return newGroup(w, connect(w)).Run(ctx, id, func(ctx context.Context, s *Shard) error {
					x := span{id: id, name: s.Name(), reason: s.Reason(), begin: time.Now(), token: s.Token()}
					<-ctx.Done()
					time.Sleep(3 * time.Second)
					_, err := s.Multi(&zk.CreateRequest{Path: dir + "/saved-" + id + s.Name(), Acl: openACL})
					assert.NoError(w, err)
					errors.As(context.Cause(ctx), &x.moved)
					x.finish = time.Now()
					spans <- x
					return errors.New("ignored")
				})
			})
			return func() {
				cancel()
				require.NoError(w, <-done)
			}
		}
		stopA := run("a")
		bubble.Settle()
		stopB := run("b")
		bubble.Settle()
		x := <-spans
		require.Equal(w, &MovedError{x.name, "b", Joined}, x.moved)
		require.Equal(w, Added, x.reason)
		require.ErrorContains(w, x.moved, "must be released for b: joined")
		owner, err := newGroup(w, connect(w)).Owner(w.Context(), x.name)
		require.NoError(w, err)
		require.Equal(w, "b", owner.Member)
		require.Greater(w, owner.Token, x.token)
		stopA()
		require.Equal(w, Left, (<-spans).moved.Reason, "the context of Run is done")
		bubble.Settle()
		stopB()
		y, z := <-spans, <-spans
		if y.name != x.name {
			y, z = z, y
		}
		require.Equal(w, Joined, y.reason)
		require.Equal(w, Left, z.reason)
		require.Equal(w, owner.Token, y.token)
		require.False(w, y.begin.Before(x.finish))
		require.WithinDuration(w, x.finish, y.begin, time.Second)
		owner, err = newGroup(w, connect(w)).Owner(w.Context(), x.name)
		require.NoError(w, err)
		require.Zero(w, owner)
	})
}

// TestRun_GracePeriod checks that a shard is revoked after the grace period, and that two functions do not
// run for the same shard at the same time.
func TestRun_GracePeriod(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		r := newRecorder(w)
		setShards(w, 1)
		a := r.start("a", time.Minute, WithGrace(5*time.Second))
		bubble.Settle()
		one := r.grantOf("s00000")
		update(w, func(s *Spec) { s.Pins = map[string]string{"s00000": "b"} })
		b := r.start("b", 0)
		<-one.ReleaseRequested()
		begin := time.Now()
		require.NoError(w, one.Err())
		require.Equal(w, "b", one.Moved().To)
		<-one.Done()
		require.Equal(w, 5*time.Second, time.Since(begin).Round(10*time.Millisecond))
		require.ErrorIs(w, one.Err(), ErrRevoked)
		_, err := one.Multi()
		require.ErrorIs(w, err, recipes.ErrNotHeld)
		time.Sleep(time.Second)
		require.Equal(w, map[string]string{"s00000": "b"}, r.currentOwners())
		b.leave(w)
		time.Sleep(5 * time.Second)
		require.Empty(w, r.currentOwners(), "the function of a still runs")
		bubble.Settle()
		bubble.Settle()
		require.Equal(w, map[string]string{"s00000": "a"}, r.currentOwners())
		a.leave(w)
	})
}

// TestRun_FunctionFails checks that Run returns the error of a function, and releases the shards.
func TestRun_FunctionFails(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		setShards(w, 5)
		failure := errors.New("failure")
		var running atomic.Int32
		err := newGroup(w, connect(w)).Run(w.Context(), "a", func(ctx context.Context, s *Shard) error {
			running.Add(1)
			defer running.Add(-1)
			switch s.Name() {
			case "s00003":
				time.Sleep(time.Second)
				return failure
			case "s00001":
				return nil // the member keeps the shard, without a function
			}
			<-ctx.Done()
			return nil
		})
		require.ErrorIs(w, err, failure)
		require.Zero(w, running.Load())
		for _, name := range numberedNames("s", 5) {
			owner, err := newGroup(w, connect(w)).Owner(w.Context(), name)
			require.NoError(w, err)
			require.Zero(w, owner)
		}
		g := newGroup(w, connect(w))
		idle := func(context.Context, *Shard) error { return nil }
		for _, id := range []string{"", "a/b"} {
			require.ErrorIs(w, g.Run(w.Context(), id, idle), recipes.ErrInvalid)
		}
		require.ErrorIs(w, g.Run(w.Context(), "a", nil), recipes.ErrInvalid)
		ctx, cancel := context.WithCancel(w.Context())
		cancel()
		require.NoError(w, g.Run(ctx, "a", idle))
		bubble.Settle() // the znode of the member is removed in the background
		_, err = NewGroup(g.setup.Conn, "/")
		require.ErrorIs(w, err, recipes.ErrInvalid)
		for _, option := range []Option{WithGrace(-1), WithWeight(0), WithZone(strings.Repeat("z", 300))} {
			_, err = NewGroup(g.setup.Conn, dir, option)
			require.ErrorIs(w, err, recipes.ErrInvalid)
		}
	})
}

// lateContext is a context that ends while join succeeds.
type lateContext struct{ context.Context }

func (lateContext) Err() error { return context.Canceled }

// TestRun_EndsWhileJoining checks that Run does not leave its member in the group when it returns.
func TestRun_EndsWhileJoining(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		setShards(w, 1)
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		g := newGroup(w, connect(w))
		done := bubble.Async(func() error {
			return g.Run(lateContext{ctx}, "a", func(ctx context.Context, _ *Shard) error { <-ctx.Done(); return nil })
		})
		bubble.Settle()
		cancel()
		require.NoError(w, <-done)
		members, err := g.ids.Members(w.Context())
		require.NoError(w, err)
		require.Empty(w, members)
	})
}

// TestRun_FunctionErrorWrapsErrClosed checks that Run returns an error of a function that wraps recipes.ErrClosed.
func TestRun_FunctionErrorWrapsErrClosed(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		setShards(w, 1)
		err := newGroup(w, connect(w)).Run(w.Context(), "a", func(context.Context, *Shard) error {
			return fmt.Errorf("a queue of the program: %w", recipes.ErrClosed)
		})
		require.ErrorIs(w, err, recipes.ErrClosed)
	})
}

// TestMember_OwnedIsDelivered checks that Owned delivers the right set, and that the member waits until the user
// releases a shard.
func TestMember_OwnedIsDelivered(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		setShards(w, 4)
		a, err := newGroup(w, connect(w), WithGrace(time.Hour)).Join(w.Context(), "a")
		require.NoError(w, err)
		bubble.Settle()
		first := (<-a.Owned()).Shards
		require.Len(w, first, 4)
		b, err := newGroup(w, connect(w), WithGrace(time.Hour)).Join(w.Context(), "b")
		require.NoError(w, err)
		bubble.Settle()
		second := (<-a.Owned()).Shards
		require.Len(w, second, 2)
		require.Empty(w, b.Owned(), "the shards are not released")
		for _, s := range first {
			require.NoError(w, s.Err())
			if !slices.Contains(second, s) {
				require.Equal(w, &MovedError{s.Name(), "b", Joined}, s.Moved())
				require.NoError(w, s.Release())
			} else {
				require.Nil(w, s.Moved())
			}
		}
		bubble.Settle()
		require.Empty(w, a.Owned(), "nothing has changed")
		third := (<-b.Owned()).Shards
		require.Len(w, third, 2)
		require.NoError(w, a.Err())
		require.ErrorIs(w, a.Close(), recipes.ErrUnconfirmed)
		for _, s := range second {
			require.Equal(w, Left, s.Moved().Reason)
			require.NoError(w, s.Release())
		}
		require.NoError(w, a.Close())
		require.NoError(w, a.Close())
		require.ErrorIs(w, (<-a.Owned()).Err, recipes.ErrClosed)
		_, ok := <-a.Owned()
		require.False(w, ok)
		require.ErrorIs(w, a.Err(), recipes.ErrClosed)
		bubble.Settle()
		all := (<-b.Owned()).Shards
		require.Len(w, all, 4)
		closed := bubble.Async(b.Close)
		for _, s := range all {
			<-s.ReleaseRequested()
			require.NoError(w, s.Release())
		}
		require.NoError(w, <-closed)
	})
}

// TestMember_ShardNotReceived checks that a member does not wait for the grace period when the user has not
// received the shard.
func TestMember_ShardNotReceived(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		setShards(w, 4)
		idle, err := newGroup(w, connect(w), WithGrace(time.Hour)).Join(w.Context(), "idle")
		require.NoError(w, err)
		bubble.Settle()
		r := newRecorder(w)
		busy := r.start("busy", 0)
		bubble.Settle()
		require.Equal(w, map[string]int{"busy": 2}, r.loads())
		require.NoError(w, idle.Close())
		bubble.Settle()
		r.requireEven(4, "busy")
		busy.leave(w)
	})
}
