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

// TestSemaphoreLimit_StoredLimitTakesPrecedence checks that the stored limit takes precedence over the limits
// given to constructors, and remains when all contenders have left.
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

// TestSemaphoreLimit_UnstoredLimitLeavesNoZnode checks that ZooKeeper can remove the znode of a semaphore that
// stores no limit.
func TestSemaphoreLimit_UnstoredLimitLeavesNoZnode(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		c := w.contend(1, 1)
		require.Zero(w, w.srv.Sweep())
		c.release()
		require.Equal(w, 1, w.srv.Sweep())
		w.contend(1, 1).release()
	})
}

// TestSemaphoreLimit_RaisingAdmitsWaiters checks that a higher limit immediately admits the waiting contenders
// whose leases are within it.
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

// TestSemaphoreLimit_LoweringRevokesNoLease checks that a lower limit revokes no lease, and that no contender
// is admitted before the leases are within the new limit.
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

// TestSemaphoreLimit_AdmitsContenderThatJoinsAfterLowering checks that a contender that joins after the limit
// was lowered is admitted when all holders but the last leave. Its predecessor, the last holder, was admitted
// under the higher limit, when it had no follower to notify.
func TestSemaphoreLimit_AdmitsContenderThatJoinsAfterLowering(t *testing.T) {
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

// TestSemaphoreLimit_RejectsWaiterAboveLoweredLimit checks that Acquire returns ErrOverLimit if the limit falls
// below its request while it waits, immediately if its contender is the first that waits, and that later
// contenders are admitted.
func TestSemaphoreLimit_RejectsWaiterAboveLoweredLimit(t *testing.T) {
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

// TestSetLimit_AppliesConcurrentCallsInTurn checks that SetLimit repeats its change if another client has set
// the limit since it has listed the children.
func TestSetLimit_AppliesConcurrentCallsInTurn(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		other := w.semaphore(w.connect(), 1)
		race := w.srv.Before(zktest.Match{Op: zktest.OpMulti, Session: w.operator.SessionID(), Path: node, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			require.NoError(w, other.SetLimit(w.Context(), 7))
			return zktest.Pass(q)
		})
		w.setLimit(5)
		w.requireCalled(race)
		require.Equal(w, 5, w.readLimit(), "this limit was set last")
		children, _, err := w.operator.Children(node)
		require.NoError(w, err)
		require.Len(w, children, 3, "the limit and two registers: %v", children)
	})
}

// TestSetLimit_IsAppliedOnceIfReplyIsLost checks that SetLimit is applied only once if its reply is lost, and
// does not overwrite a limit that another client has set since.
// Scenario 7 of docs/traps.md.
func TestSetLimit_IsAppliedOnceIfReplyIsLost(t *testing.T) {
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

// TestSetLimit_ReportsWhetherOutcomeIsUnknown checks that SetLimit, when its context is done, returns
// ErrUnconfirmed only if it has sent a change that may still be applied.
func TestSetLimit_ReportsWhetherOutcomeIsUnknown(t *testing.T) {
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

// TestSemaphoreLimit_IsNotReadFromLaggingServer checks that Limit does not return the earlier limit that a
// server that lags behind still stores.
func TestSemaphoreLimit_IsNotReadFromLaggingServer(t *testing.T) {
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
