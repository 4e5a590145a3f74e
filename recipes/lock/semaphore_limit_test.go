package lock

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// setLimit stores a limit and waits until it has taken effect.
func (w *harness) setLimit(limit int) {
	w.Helper()
	require.NoError(w, w.semaphore(w.operator, 99).SetLimit(w.Context(), limit))
	w.passTime(0)
}

func (w *harness) readLimit() int {
	w.Helper()
	limit, err := w.semaphore(w.operator, 99).Limit(w.Context())
	require.NoError(w, err)
	return limit
}

// The stored limit has precedence over the limits of constructors, and remains when all contenders
// have left.
func TestSemaphoreLimit_StoredLimitTakesPrecedence(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		require.Equal(w, 99, w.readLimit(), "no limit is stored yet")
		w.setLimit(2)
		require.Equal(w, 2, w.readLimit())
		a, b, c := w.contend(5, 1), w.contend(5, 1), w.contend(5, 1)
		w.requireHolding(a, b)
		c.requireWaits()
		for _, x := range []*call{a, b, c} {
			x.release()
		}
		w.requireContenders()
		w.srv.Sweep()
		require.Equal(w, 2, w.readLimit())
		data, _, err := w.operator.Get(node)
		require.NoError(w, err)
		require.Equal(w, "2", string(data))
		w.setLimit(3)
		w.setLimit(3)
		require.Equal(w, 3, w.readLimit())
		children, _, err := w.operator.Children(node)
		require.NoError(w, err)
		require.Len(w, children, 2, "the limit and the register of the operator: %v", children)
	})
}

// Without a stored limit, ZooKeeper can remove the znode of the semaphore.
func TestSemaphoreLimit_ZnodeIsRemovedIfNotStored(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		c := w.contend(1, 1)
		require.Zero(w, w.srv.Sweep())
		c.release()
		require.Equal(w, 1, w.srv.Sweep())
		w.contend(1, 1).release()
	})
}

// When the limit is raised, the waiting contenders that are within the new limit are admitted
// immediately.
func TestSemaphoreLimit_RaisingAdmitsWaiters(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		var all []*call
		for range 6 {
			all = append(all, w.contend(1, 1))
		}
		w.setLimit(4)
		w.requireHolding(all[:4]...)
		w.requireWaiting(all[4:]...)
		w.setLimit(5)
		w.requireHolding(all[:5]...)
		w.requireWaiting(all[5:]...)
		w.setLimit(50)
		w.requireHolding(all...)
	})
}

// A lower limit revokes no lease, and no contender is admitted before the leases are within it.
func TestSemaphoreLimit_LoweringRevokesNoLease(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		var all []*call
		for range 7 {
			all = append(all, w.contend(4, 1))
		}
		w.setLimit(2)
		w.requireHolding(all[:4]...)
		for i, c := range []*call{all[1], all[3]} {
			c.release()
			w.requireWaiting(all[4:]...)
			require.Len(w, w.contenders(), 6-i)
		}
		all[0].release()
		w.requireHolding(all[2], all[4])
		w.requireWaiting(all[5:]...)
		all[2].release()
		all[4].release()
		w.requireHolding(all[5:]...)
	})
}

// A new contender joins behind holders that were admitted under a higher limit, when they had no
// follower to notify. The last of them stays, and the departure of the others admits it.
func TestSemaphoreLimit_ContenderJoinsAfterLowering(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		var all []*call
		for range 4 {
			all = append(all, w.contend(4, 1))
		}
		w.setLimit(2)
		late, later := w.contend(4, 1), w.contend(4, 1)
		all[0].release()
		all[1].release()
		w.requireWaiting(late, later)
		all[2].release()
		w.requireHolding(all[3], late)
		later.requireWaits()
		late.release()
		w.requireHolding(all[3], later)
	})
}

// If the limit falls below the request of a waiting contender, Acquire returns ErrOverLimit, immediately if
// the contender is the first that waits. Later contenders are admitted.
func TestSemaphoreLimit_FallsBelowRequest(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		holder := w.contend(4, 2)
		first, small, second := w.contend(4, 3), w.contend(4, 1), w.contend(4, 3)
		w.requireWaiting(first, small, second)
		w.setLimit(2)
		first.requireFails(ErrOverLimit)
		w.requireWaiting(small, second)
		holder.release()
		small.requireHolds()
		second.requireFails(ErrOverLimit)
		last := w.contend(4, 1)
		small.release()
		last.requireHolds()
	})
}

// If two clients set the limit concurrently, one change is applied after the other.
func TestSetLimit_ConcurrentCalls(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		other := w.semaphore(w.connect(), 1)
		race := w.srv.Before(zktest.Match{Op: zktest.OpMulti, Session: w.operator.SessionID(), Path: node, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			require.NoError(w, other.SetLimit(w.Context(), 7))
			return zktest.Pass(q)
		})
		w.setLimit(5)
		w.requireCalled(race)
		require.Equal(w, 5, w.readLimit(), "it was set last")
		children, _, err := w.operator.Children(node)
		require.NoError(w, err)
		require.Len(w, children, 3, "the limit and two registers: %v", children)
	})
}

// If the reply to SetLimit is lost, the change is applied only once, and does not overwrite a
// limit that another client sets in the meantime.
func TestTrap07_SemaphoreSetLimitReplyLost(t *testing.T) {
	for _, applied := range []bool{true, false} {
		runTest(t, 1, func(w *harness) {
			other := w.semaphore(w.connect(), 1)
			set, match := w.srv.Before, zktest.Match{Op: zktest.OpMulti, Session: w.operator.SessionID(), Path: node, Nth: 1}
			if applied {
				set = w.srv.After
			}
			w.setLimit(2)
			lost := set(match, func(q *zktest.Request) zktest.Verdict {
				require.NoError(w, other.SetLimit(w.Context(), 7))
				return zktest.Cut(q)
			})
			w.setLimit(5)
			w.requireCalled(lost)
			want := 5 // SetLimit(5) is applied after the other change
			if applied {
				want = 7 // SetLimit(5) was applied before the other change
			}
			require.Equal(w, want, w.readLimit())
		})
	}
}

// TestSetLimit_Unconfirmed checks that SetLimit says whether a change may still be applied after its context is done.
func TestSetLimit_Unconfirmed(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		w.setLimit(2)
		w.srv.Blackhole(zktest.ToClient, w.operator.SessionID())
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		// The listing is not answered, so SetLimit has not sent a change yet.
		require.ErrorIs(w, w.semaphore(w.operator, 1).SetLimit(ctx, 3), context.DeadlineExceeded)
		w.srv.Heal()
		w.passTime(timeout)
		require.Equal(w, 2, w.readLimit())
		w.srv.Before(zktest.Match{Op: zktest.OpMulti, Path: node, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			w.srv.Blackhole(zktest.ToClient, w.operator.SessionID())
			return zktest.Pass(q)
		})
		ctx, cancel = context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		err := w.semaphore(w.operator, 1).SetLimit(ctx, 3)
		require.ErrorIs(w, err, recipes.ErrUnconfirmed)
		require.ErrorIs(w, err, context.DeadlineExceeded)
		w.srv.Heal()
		w.passTime(timeout)
		require.Equal(w, 3, w.readLimit())
	})
}

// Limit must not return the earlier limit of a server that lags behind.
func TestSemaphoreLimit_NotOlderThanCall(t *testing.T) {
	runTest(t, 3, func(w *harness) {
		w.setLimit(2)
		s := w.semaphore(w.connectTo(1), 1)
		w.ensemble.Server(1).Partition()
		w.setLimit(3)
		ctx, cancel := context.WithTimeout(w.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := s.Limit(ctx)
		require.ErrorIs(w, err, context.DeadlineExceeded)
		w.ensemble.Server(1).Heal()
		limit, err := s.Limit(w.Context())
		require.NoError(w, err)
		require.Equal(w, 3, limit)
	})
}
