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

// TestRun_ShardsAreDivided checks that each shard belongs to the member that the plan names, and that no more
// shards than necessary move when members join and leave.
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
		a.leave(w) // stop the member a, which is the leader
		bubble.Settle()
		r.requireEven(20, "b", "c")
		require.Equal(w, 43, r.count)
		b.leave(w)
		c.leave(w)
		require.Empty(w, r.currentOwners())
	})
}

// TestRun_MovesNoShardsIfMembersStartTogether checks that no shards move when members that start together join at
// slightly different times.
func TestRun_MovesNoShardsIfMembersStartTogether(t *testing.T) {
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

// TestRun_TellsOwnersReasonOfMove checks that the old and the new owner learn why a shard moves, that the new
// owner starts after the old owner has finished, and that the old owner holds the shard until its function
// returns.
func TestRun_TellsOwnersReasonOfMove(t *testing.T) {
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

// TestRun_RevokesShardAfterGracePeriod checks that a member revokes a shard whose function does not return within
// the grace period, and does not call the function for the shard again before the earlier call has returned.
func TestRun_RevokesShardAfterGracePeriod(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		r := newRecorder(w)
		setShards(w, 1)
		a := r.start("a", time.Minute, WithGrace(5*time.Second))
		bubble.Settle()
		one := r.grantOf("s00000")
		updateSpec(w, func(s *Spec) { s.Pins = map[string]string{"s00000": "b"} })
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

// TestRun_ReturnsErrorOfFunction checks that Run returns the error of a function, and releases the shards.
func TestRun_ReturnsErrorOfFunction(t *testing.T) {
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
				return nil // return early: the member keeps the shard, without a function
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
		bubble.Settle() // wait until the znode of the member is removed in the background
		_, err = NewGroup(g.setup.Conn, "/")
		require.ErrorIs(w, err, recipes.ErrInvalid)
		for _, option := range []Option{WithGrace(-1), WithWeight(0), WithZone(strings.Repeat("z", 300))} {
			_, err = NewGroup(g.setup.Conn, dir, option)
			require.ErrorIs(w, err, recipes.ErrInvalid)
		}
	})
}

// lateContext is a context whose Err returns an error although Done is not closed, as if the context
// ended just when join has succeeded.
type lateContext struct{ context.Context }

func (lateContext) Err() error { return context.Canceled }

// TestRun_LeavesGroupIfContextEndsWhileJoining checks that Run removes its member from the group if its context
// ends while the member joins.
func TestRun_LeavesGroupIfContextEndsWhileJoining(t *testing.T) {
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

// TestRun_ReturnsFunctionErrorThatWrapsErrClosed checks that Run does not mistake an error of a function that
// wraps recipes.ErrClosed for the end of the member, but returns the error.
func TestRun_ReturnsFunctionErrorThatWrapsErrClosed(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		setShards(w, 1)
		err := newGroup(w, connect(w)).Run(w.Context(), "a", func(context.Context, *Shard) error {
			return fmt.Errorf("a queue of the program: %w", recipes.ErrClosed)
		})
		require.ErrorIs(w, err, recipes.ErrClosed)
	})
}

// TestMember_DeliversOwnedShards checks that Owned delivers the shards that the member owns, and that the member
// does not give up a shard before the user releases it.
func TestMember_DeliversOwnedShards(t *testing.T) {
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

// TestMember_ReleasesShardThatUserHasNotReceived checks that a member releases a shard without the grace period if
// the user has not received the shard from Owned.
func TestMember_ReleasesShardThatUserHasNotReceived(t *testing.T) {
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
