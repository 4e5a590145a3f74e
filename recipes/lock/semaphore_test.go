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

// contend opens a session, requests n leases, and waits until the contender is in the queue.
func (w *harness) contend(limit, n int) *call {
	return w.acquire(w.semaphore(w.connect(), limit), n)
}

// acquire requests n leases, and waits until the contender is in the queue.
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

// As many contenders hold leases as the limit permits, in whatever order the holders leave.
func TestSemaphore_HoldersLeaveInAnyOrder(t *testing.T) {
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

// TestSemaphore_SeveralLeases checks that a contender does not overtake an earlier contender that waits for
// more leases.
func TestSemaphore_SeveralLeases(t *testing.T) {
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

// TestSemaphore_OverLimit checks that a contender does not wait for more leases than the limit, and that an
// invalid number is rejected.
func TestSemaphore_OverLimit(t *testing.T) {
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

// TryAcquire lists the semaphore to find out whether it would have to wait.
func TestSemaphore_TryAcquire(t *testing.T) {
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

// A waiting contender at any position gives up: later contenders are admitted, and its znode is
// removed.
func TestSemaphore_WaiterGivesUp(t *testing.T) {
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

// A large request that blocks later contenders gives up, and they are admitted.
func TestSemaphore_LargeRequestGivesUp(t *testing.T) {
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

// TestTrap24_SemaphorePredecessorIsDeleted checks that a contender wakes when its predecessor is deleted
// before it is watched (CURATOR-107, helix #44).
func TestTrap24_SemaphorePredecessorIsDeleted(t *testing.T) {
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

// TestTrap26_SemaphoreUnrelatedEvents checks that a watch is set again after an unrelated event has consumed
// it, and that the data that an operator writes is not taken for a limit (CURATOR-258, CURATOR-329).
func TestTrap26_SemaphoreUnrelatedEvents(t *testing.T) {
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

// TestTrap32_SemaphoreSequenceNumbersExhausted checks that contenders keep their order when the sequence
// numbers are exhausted, and that new contenders are rejected, because servers since 3.6 assign the same
// number to all of them (ZOOKEEPER-2944, ZOOKEEPER-4706).
func TestTrap32_SemaphoreSequenceNumbersExhausted(t *testing.T) {
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

// TestTrap36_SemaphoreRemovedBeforeSetLimit checks that SetLimit does not return an error when the znode of
// the semaphore is removed before it writes (CURATOR-724, kazoo #563).
func TestTrap36_SemaphoreRemovedBeforeSetLimit(t *testing.T) {
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

// TestTrap49_SemaphoreCountsExistingLeases checks that leases without a holder are not counted, and that no
// more leases are granted than the limit (CURATOR-335, CURATOR-315, CURATOR-462, CURATOR-595, kazoo #213).
func TestTrap49_SemaphoreCountsExistingLeases(t *testing.T) {
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
