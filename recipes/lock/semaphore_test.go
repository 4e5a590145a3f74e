package lock

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// contend opens a session, requests n leases of the semaphore in a new goroutine, and waits until the contender
// is in the queue.
func (w *harness) contend(limit, n int) *call {
	return w.acquire(w.semaphore(w.connect(), limit), n)
}

// acquire requests n leases of s in a new goroutine, and waits until the contender is in the queue.
func (w *harness) acquire(s *Semaphore, n int) *call {
	c := w.startCall(s.setup.Conn, func(ctx context.Context) (*Hold, error) { return s.Acquire(ctx, n) })
	w.passTime(0)
	return c
}

// requestsDuring returns the requests that a session sends while f runs, without pings.
func (w *harness) requestsDuring(session int64, f func()) zktest.Log {
	begin := len(w.srv.Log())
	f()
	w.passTime(0)
	return w.srv.Log()[begin:].Session(session).Requests()
}

// withoutChecks returns log without the checks of leases.
func withoutChecks(log zktest.Log) zktest.Log {
	return log.Filter(func(e zktest.Entry) bool { return e.Op != zktest.OpMulti || e.Ops != 1 })
}

// TestSemaphore_AdmitsUpToLimitInAnyOrderOfReleases checks that as many contenders hold leases as the limit
// permits, in whatever order the holders release them.
func TestSemaphore_AdmitsUpToLimitInAnyOrderOfReleases(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		var all []*call
		for range 8 {
			all = append(all, w.contend(3, 1))
		}
		for n, i := range []int{1, 2, 3, 0, 4} { // indexes of the holders, in the order in which they leave
			w.requireWaiting(all[3+n:]...)
			all[i].release()
		}
		w.requireHolding(all[5:]...)
		require.Greater(w, all[7].hold.Token(), all[6].hold.Token())
	})
}

// TestSemaphore_SmallRequestDoesNotOvertakeLargeOne checks that a contender does not overtake an earlier
// contender that waits for more leases.
func TestSemaphore_SmallRequestDoesNotOvertakeLargeOne(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		a, b := w.contend(5, 3), w.contend(5, 2)
		w.requireHolding(a, b)
		big, small := w.contend(5, 4), w.contend(5, 1)
		w.requireWaiting(big, small)
		b.release()
		w.requireWaiting(big, small) // the contender small is within the limit, but must not overtake big
		a.release()
		w.requireHolding(big, small)
		last := w.contend(5, 5)
		small.release()
		last.requireWaits()
		big.release()
		last.requireHolds()
	})
}

// TestSemaphore_RejectsRequestAboveLimit checks that Acquire and TryAcquire return ErrOverLimit for more leases
// than the limit, and ErrInvalid for an invalid number.
func TestSemaphore_RejectsRequestAboveLimit(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		w.contend(2, 3).requireFails(ErrOverLimit)
		w.requireContenders()
		s := w.semaphore(w.operator, 2)
		_, err := s.TryAcquire(w.Context(), 3)
		require.ErrorIs(w, err, ErrOverLimit)
		for _, n := range []int{0, -1, 1_000_000_000} {
			_, err = s.Acquire(w.Context(), n)
			require.ErrorIs(w, err, recipes.ErrInvalid)
			_, err = s.TryAcquire(w.Context(), n)
			require.ErrorIs(w, err, recipes.ErrInvalid)
			require.ErrorIs(w, s.SetLimit(w.Context(), n), recipes.ErrInvalid)
		}
	})
}

// TestSemaphore_TryAcquireDoesNotOvertakeWaiter checks that TryAcquire returns ErrHeld if too few leases are
// free, or if another contender waits for leases.
func TestSemaphore_TryAcquireDoesNotOvertakeWaiter(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		s := w.semaphore(w.connect(), 3)
		first, err := s.TryAcquire(w.Context(), 2)
		require.NoError(w, err)
		_, err = s.TryAcquire(w.Context(), 2)
		require.ErrorIs(w, err, ErrHeld)
		second, err := s.TryAcquire(w.Context(), 1)
		require.NoError(w, err)
		require.NoError(w, second.Release())
		// One lease is free, but another contender waits for two leases.
		waiter := w.contend(3, 2)
		waiter.requireWaits()
		_, err = s.TryAcquire(w.Context(), 1)
		require.ErrorIs(w, err, ErrHeld)
		require.NoError(w, first.Release())
		w.passTime(0)
		waiter.requireHolds()
	})
}

// TestSemaphore_AdmitsOthersAfterWaiterGivesUp checks that a contender that gives up at any position of the
// queue leaves no znode, and that later contenders are admitted.
func TestSemaphore_AdmitsOthersAfterWaiterGivesUp(t *testing.T) {
	for gone := range 3 {
		runTest(t, 1, func(w *harness) {
			holder := w.contend(1, 1)
			line := []*call{w.contend(1, 1), w.contend(1, 1), w.contend(1, 1)}
			line[gone].cancel()
			w.passTime(0)
			line[gone].requireFails(context.Canceled)
			require.Len(w, w.contenders(), 3)
			holder.release()
			for _, c := range slices.Delete(line, gone, gone+1) {
				c.release()
			}
		})
	}
}

// TestSemaphore_AdmitsOthersAfterLargeRequestGivesUp checks that smaller requests are admitted when the large
// request that blocks them gives up.
func TestSemaphore_AdmitsOthersAfterLargeRequestGivesUp(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		holder, big := w.contend(4, 2), w.contend(4, 4)
		a, b, c := w.contend(4, 1), w.contend(4, 1), w.contend(4, 1)
		w.requireWaiting(big, a, b, c)
		big.cancel()
		w.passTime(0)
		w.requireHolding(a, b)
		c.requireWaits()
		holder.release()
		c.requireHolds()
	})
}

// TestSemaphore_WakesIfPredecessorIsDeletedBeforeWatch checks that a contender wakes if its predecessor is
// deleted before the contender has set its watch (CURATOR-107, helix #44).
// Scenario 24 of docs/traps.md.
func TestSemaphore_WakesIfPredecessorIsDeletedBeforeWatch(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		holder, ahead := w.contend(1, 1), w.contend(1, 1)
		gone := w.srv.Before(zktest.Match{Op: zktest.OpGetData, Path: ahead.path(), Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			_ = w.operator.Delete(ahead.path(), -1)
			return zktest.Pass(q)
		})
		c := w.contend(1, 1)
		w.requireCalled(gone)
		w.passTime(time.Second)
		ahead.requireFails(recipes.ErrDeleted)
		c.requireWaits()
		holder.release()
		c.requireHolds()
	})
}

// TestSemaphore_WatchesAgainAfterUnrelatedEvent checks that a contender sets its watch again after an unrelated
// event has consumed the watch, and that it does not take data that an operator writes for a limit
// (CURATOR-258, CURATOR-329).
// Scenario 26 of docs/traps.md.
func TestSemaphore_WatchesAgainAfterUnrelatedEvent(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		all := []*call{w.contend(2, 1), w.contend(2, 1), w.contend(2, 1), w.contend(2, 1)}
		for i := range 5 {
			for _, path := range append(w.contenders(), node) {
				w.set(path, fmt.Sprint(i))
				_, err := w.operator.SetACL(path, zk.WorldACL(zk.PermAll), -1)
				require.NoError(w, err)
				w.passTime(0)
			}
			w.removeAndWait(w.createEphemeral(node+"/other-", zk.FlagSequence))
			w.requireHolding(all[:2]...)
			w.requireWaiting(all[2:]...)
		}
		all[1].release()
		w.requireHolding(all[0], all[2])
		all[3].requireWaits()
		all[0].release()
		w.requireHolding(all[2:]...)
	})
}

// TestSemaphore_RejectsContendersIfNumbersAreExhausted checks that a semaphore rejects new contenders after its
// sequence numbers are exhausted, because servers since 3.6 assign the same number to all of them, and that
// contenders that have joined before keep their order (ZOOKEEPER-2944, ZOOKEEPER-4706).
// Scenario 32 of docs/traps.md.
func TestSemaphore_RejectsContendersIfNumbersAreExhausted(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		w.contend(2, 1).release()
		require.NoError(w, w.srv.SetSequence(node, math.MaxInt32-5))
		var all []*call
		for range 4 {
			all = append(all, w.contend(2, 1))
		}
		w.setLimit(3) // takes the last sequence numbers
		for range 3 {
			w.contend(2, 1).requireFails(recipes.ErrNodeExhausted)
		}
		require.Len(w, w.contenders(), 4)
		w.requireHolding(all[:3]...)
		w.setLimit(1)
		w.setLimit(2)
		require.Equal(w, 2, w.readLimit())
		all[1].release()
		w.requireWaiting(all[3])
		all[2].release()
		w.requireHolding(all[0], all[3])
	})
}

// TestSetLimit_SucceedsIfZnodeIsRemovedBeforeWrite checks that SetLimit does not return an error if the servers
// remove the znode of the semaphore before SetLimit writes it (CURATOR-724, kazoo #563).
// Scenario 36 of docs/traps.md.
func TestSetLimit_SucceedsIfZnodeIsRemovedBeforeWrite(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		w.contend(1, 1).release()
		swept := w.srv.Before(zktest.Match{Op: zktest.OpMulti, Path: node, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			w.srv.Sweep()
			return zktest.Pass(q)
		})
		w.setLimit(4)
		w.requireCalled(swept)
		require.Equal(w, 4, w.readLimit())
	})
}

// TestSemaphore_CountsOnlyExistingLeases checks that leases of clients that have left, or whose sessions have
// expired, are not counted, and that no more leases are granted than the limit (CURATOR-335, CURATOR-315,
// CURATOR-462, CURATOR-595, kazoo #213).
// Scenario 49 of docs/traps.md.
func TestSemaphore_CountsOnlyExistingLeases(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		for range 20 {
			a, b, c := w.contend(3, 1), w.contend(3, 2), w.contend(3, 3)
			w.requireHolding(a, b)
			c.requireWaits()
			w.expire(b.conn)
			d := w.contend(3, 1)
			d.cancel()
			c.cancel()
			w.passTime(0)
			e := w.contend(3, 2)
			e.requireHolds()
			f := w.contend(3, 1)
			f.requireWaits()
			a.release()
			f.release()
			e.release()
			w.requireContenders()
		}
	})
}
