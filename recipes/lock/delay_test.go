package lock

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const lockDelay = 10 * time.Second

var withDelay = WithLockDelay(lockDelay)

// holdAfterDelay asserts that the contenders acquire the lock exactly at the end of the lock-delay.
func (w *harness) holdAfterDelay(all ...*call) {
	w.Helper()
	w.passTime(lockDelay - 1)
	w.requireWaiting(all...)
	w.passTime(1)
	w.requireHolding(all...)
}

// If a hold ends for another reason than Release, the next contender waits for the delay, and the
// contender after it does not.
func TestLockDelay_AppliesAfterLoss(t *testing.T) {
	for _, end := range []struct {
		name string
		do   func(w *harness, a *call)
	}{
		{"session expired", func(w *harness, a *call) { w.expire(a.conn) }},
		{"znode deleted", func(w *harness, a *call) { w.remove(a.hold.Path()) }},
		{"connection closed", func(_ *harness, a *call) { a.conn.Close() }},
	} {
		t.Run(end.name, func(t *testing.T) {
			runTest(t, 1, func(w *harness) {
				first, second, third := w.lock(w.connect(), withDelay), w.lock(w.connect(), withDelay), w.lock(w.connect(), withDelay)
				first.requireHolds()
				require.Len(w, w.markers(), 1)
				w.passTime(timeout)
				end.do(w, first)
				w.passTime(lockDelay - 1)
				second.requireWaits()
				_, err := w.mutex(w.operator, withDelay).TryLock(w.Context())
				require.ErrorIs(w, err, ErrHeld)
				w.passTime(1)
				second.requireHolds()
				require.Len(w, w.markers(), 1, "the marker of the current holder")
				second.release()
				require.Equal(w, third.at, time.Now(), "without a delay after a release")
				third.release()
				require.Empty(w, w.markers())
			})
		})
	}
}

// The lease of a holder expires, but not its session. The holder leaves the queue, which does not count as a
// release.
func TestLockDelay_LeaseExpires(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		first, second := w.lock(w.connect(), withDelay), w.lock(w.connect(), withDelay)
		h := first.requireHolds()
		w.srv.Before(zktest.Match{Op: zktest.OpMulti, Session: first.conn.SessionID()}, zktest.Fail(zk.ErrSessionMoved))
		lapsed := <-doneAt(h)
		require.ErrorIs(w, h.Err(), recipes.ErrLeaseExpired)
		w.passTime(0)
		w.requireContenders(w.contenders()[0]) // only the second contender is left
		require.NoError(w, h.Release(), "Release after the lease has expired")
		require.Len(w, w.markers(), 1)
		w.passTime(time.Until(lapsed.Add(lockDelay - 1)))
		second.requireWaits()
		w.passTime(1)
		second.requireHolds()
	})
}

// TestLockDelay_ReleaseAfterExpiryIsLoss checks that a Release after the lease has expired does not cancel
// the delay, for example in a process that was paused.
func TestLockDelay_ReleaseAfterExpiryIsLoss(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		a := w.lock(w.connect(), withDelay)
		h := a.requireHolds()
		// Err ends the grant in the same way when the clock passes the deadline; the contender has not
		// noticed the expiry yet.
		h.grant.End(recipes.ErrLeaseExpired)
		require.NoError(w, h.Release())
		require.Len(w, w.markers(), 1)
		next := w.lock(w.connect(), withDelay)
		w.holdAfterDelay(next)
	})
}

// If no contender waits when the holder is lost, the delay of the next contender starts when it
// joins. The marker prevents the removal of the lock's znode as an empty container.
func TestLockDelay_ContenderJoinsLater(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		first := w.lock(w.connect(), withDelay)
		w.expire(first.conn)
		w.passTime(5 * time.Minute)
		require.Len(w, w.markers(), 1)
		next := w.lock(w.connect(), withDelay)
		w.holdAfterDelay(next)
	})
}

// TryLock waits for the lock-delay. Otherwise programs that only call TryLock would never acquire the lock.
func TestLockDelay_TryLockWaits(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		first := w.lock(w.connect(), withDelay)
		w.expire(first.conn)
		w.passTime(0)
		w.requireElapsed(lockDelay, func() {
			h, err := w.mutex(w.operator, withDelay).TryLock(w.Context())
			require.NoError(w, err)
			require.NoError(w, h.Release())
		})
	})
}

// A waiter that gives up does not count as a lost holder, so it causes no lock-delay.
func TestLockDelay_WaiterGivesUp(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		first := w.lock(w.connect(), withDelay)
		second := w.lock(w.connect(), withDelay)
		third := w.lock(w.connect(), withDelay)
		second.cancel()
		w.passTime(0)
		first.release()
		third.release()
		require.Empty(w, w.markers())

		// A waiter joins during the lock-delay, and gives up.
		again := w.lock(w.connect(), withDelay)
		w.expire(again.conn)
		w.passTime(0)
		waits := w.lock(w.connect(), withDelay)
		w.passTime(lockDelay / 2)
		waits.cancel()
		w.passTime(0)
		w.requireContenders()
		require.Len(w, w.markers(), 1)
		last := w.lock(w.connect(), withDelay)
		w.holdAfterDelay(last)
		last.release()
	})
}

// TestLockDelay_RepliesLost checks that no marker remains, and the lock is acquired, when the reply to the
// transaction that creates the marker, or to the release, is lost.
func TestLockDelay_RepliesLost(t *testing.T) {
	forEachLoss(t, briefLosses, 3, func(w *harness, l bubble.Fault) {
		for k := 1; k <= 2; k++ { // the 1st transaction creates the marker, the 2nd one releases the lock
			conn := w.connect()
			lost := l.Set(w.srv, zktest.Match{Op: zktest.OpMulti, Session: conn.SessionID(), Path: node + "/held*", Nth: k})
			a := w.lock(conn, withDelay)
			w.passTime(timeout / 2)
			a.requireHolds()
			require.Len(w, w.markers(), 1)
			require.NoError(w, a.hold.Release())
			w.requireCalled(lost)
			require.Empty(w, w.markers())
		}
	})
}

// If the znode of a waiter is deleted, it leaves no marker for which others would have to wait.
func TestLockDelay_ZnodeOfWaiterIsDeleted(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		gone := w.srv.Before(zktest.Match{Op: zktest.OpMulti, Path: node + "/held*", Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			w.remove(w.contenders()[0])
			return zktest.Pass(q)
		})
		a := w.lock(w.connect(), withDelay)
		w.passTime(moment)
		w.requireCalled(gone)
		a.requireFails(recipes.ErrDeleted)
		require.Empty(w, w.markers())
	})
}

// A contender that is not permitted to create a marker does not acquire the lock.
func TestLockDelay_NoPermissionToCreateMarker(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		a := w.lock(w.connect(), withDelay)
		refused := w.srv.Before(zktest.Match{Op: zktest.OpMulti, Path: node + "/held*"}, zktest.Fail(zk.ErrNoAuth))
		a.release()
		b := w.lock(w.connect(), withDelay)
		w.passTime(lockDelay + moment)
		b.requireFails(recipes.ErrPermission)
		w.requireCalled(refused)
		refused.Remove()
		require.Len(w, w.markers(), 1, "of the holder that was not permitted to delete it")
		w.requireContenders()
	})
}

// If the lease expires while a contender waits for the lock-delay, the contender stays in the queue, because
// no lock was granted to it.
func TestLockDelay_LeaseOfWaiterExpires(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		first := w.lock(w.connect(), withDelay)
		w.expire(first.conn)
		w.passTime(0)
		next := w.lock(w.connect(), withDelay)
		refused := w.srv.Before(zktest.Match{Op: zktest.OpMulti, Session: next.conn.SessionID()}, zktest.Fail(zk.ErrSessionMoved))
		w.passTime(lockDelay - timeout)
		refused.Remove()
		next.requireWaits()
		w.passTime(timeout)
		next.requireHolds()
	})
}

// Readers wait for the delay after a writer was lost, and writers after readers were lost. Readers
// do not wait for lost readers.
func TestLockDelay_ReadersAndWriters(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		r1 := w.read(w.connect(), withDelay)
		r2 := w.read(w.connect(), withDelay)
		require.Len(w, w.markers(), 2)
		w.expire(r1.conn)
		w.passTime(0)
		r3 := w.read(w.connect(), withDelay)
		r3.requireHolds()
		x := w.write(w.connect(), withDelay)
		r2.release()
		r3.release()
		require.Len(w, w.markers(), 1)
		w.holdAfterDelay(x.call)

		r4, r5 := w.read(w.connect(), withDelay), w.read(w.connect(), withDelay)
		w.expire(x.conn)
		w.holdAfterDelay(r4, r5)
		require.Len(w, w.markers(), 2)
		r4.release()
		r5.release()
		require.Empty(w, w.markers())
	})
}

// The marker remains after a downgrade, so the loss of the downgraded hold also delays the next writer.
func TestLockDelay_MarkerRemainsAfterDowngrade(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		x := w.write(w.connect(), withDelay)
		x.downgrade()
		r := w.read(w.connect(), withDelay)
		r.requireHolds()
		require.Len(w, w.markers(), 2)
		r.release()
		x.release()
		require.Empty(w, w.markers())

		x = w.write(w.connect(), withDelay)
		x.downgrade()
		w.expire(x.conn)
		w.passTime(0)
		next := w.write(w.connect(), withDelay)
		w.holdAfterDelay(next.call)
	})
}

// TestLockDelay_ManyStaleMarkers checks that no stale markers remain when their deletion in one transaction
// would be larger than a server accepts.
func TestLockDelay_ManyStaleMarkers(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		dir := "/" + strings.Repeat("d", 4000)
		w.create(dir)
		for i := range 300 {
			w.create(fmt.Sprintf("%s/held-r-00000000-0000-4000-8000-%012d", dir, i))
		}
		m, err := NewMutex(w.connect(), dir, recipes.WithSessionTimeout(timeout), withDelay)
		require.NoError(w, err)
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		w.requireElapsed(lockDelay, func() {
			h, err := m.Lock(ctx)
			require.NoError(w, err)
			require.Len(w, w.markers(), 1)
			require.NoError(w, h.Release())
		})
		require.Empty(w, w.markers())
	})
}

// TestStaleMarkers_HaveNoHolder checks that staleMarkers returns exactly the markers whose holders do not exist.
func TestStaleMarkers_HaveNoHolder(t *testing.T) {
	const a, b, c = "0000000a-0000-0000-0000-000000000000", "0000000b-0000-0000-0000-000000000000", "0000000c-0000-0000-0000-000000000000"
	children := []string{"held-w-" + a, "held-r-" + b, "held-w-" + c, "_c_" + c + "-__READ__0000000001", "held", "held-w"}
	require.Equal(t, []string{"held-w-" + a, "held-r-" + b}, staleMarkers(children, "held-w-x"))
	require.Equal(t, []string{"held-w-" + a}, staleMarkers(children, "held-r-x"))
	require.Equal(t, []string{"held-r-" + b}, staleMarkers(children, "held-w-"+a))
}

// A release before the lease expires counts as a release, even if it is unknown whether an earlier downgrade
// was applied.
func TestLockDelay_ReleaseDuringDowngrade(t *testing.T) {
	for _, applied := range []bool{true, false} {
		runTest(t, 1, func(w *harness) {
			x := w.write(w.connect(), withDelay)
			x.requireHolds()
			match := zktest.Match{Op: zktest.OpMulti, Path: x.pathAsReader()}
			moved := zktest.Fail(zk.ErrSessionMoved)
			if match.Nth = 1; applied {
				w.srv.After(match, moved)
			} else {
				w.srv.Before(match, moved)
			}
			down := bubble.Async(x.write.Downgrade)
			w.passTime(0)
			require.NoError(w, x.hold.Release())
			require.ErrorIs(w, <-down, recipes.ErrNotHeld)
			require.ErrorIs(w, x.hold.Err(), recipes.ErrReleased)
			require.Empty(w, w.markers())
			w.write(w.connect(), withDelay).requireHolds()
		})
	}
}

// The waiter gives up after its marker was created. No caller has received the lock, so it was not lost. The
// cause of the waiter's context is the loss of another hold, and must not be mistaken for the loss of this
// one.
func TestLockDelay_WaiterGivesUpBecauseOtherHoldIsLost(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		ctx, cancel := context.WithCancelCause(w.Context())
		waiter := w.mutex(w.connect(), withDelay).Join(ctx)
		w.passTime(0)
		require.Len(w, w.markers(), 1)
		cancel(recipes.ErrLeaseExpired)
		w.passTime(0)
		_, err := waiter.Wait()
		require.ErrorIs(w, err, recipes.ErrLeaseExpired)
		_, err = waiter.Position(w.Context())
		require.ErrorIs(w, err, recipes.ErrLeaseExpired)
		require.Empty(w, w.markers())
		w.requireContenders()
	})
}
