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

// requireHeldAfterDelay asserts that the contenders acquire the lock exactly when the lock-delay is over.
func (w *harness) requireHeldAfterDelay(all ...*call) {
	w.Helper()
	w.passTime(lockDelay - 1)
	w.requireWaiting(all...)
	w.passTime(1)
	w.requireHolding(all...)
}

// TestLockDelay_AppliesAfterLoss checks that the next contender waits for the lock-delay after a holder has
// lost the lock, and that the contender behind it does not wait after a Release.
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

// TestLockDelay_AppliesAfterLeaseExpires checks that the lock-delay applies if the lease of a holder expires
// although its session survives. The holder then deletes its znode, which must not have the effect of a
// Release.
func TestLockDelay_AppliesAfterLeaseExpires(t *testing.T) {
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

// TestLockDelay_AppliesIfReleaseFollowsExpiry checks that a Release after the expiry of the lease does not
// cancel the lock-delay. A process that was paused can call Release so late.
func TestLockDelay_AppliesIfReleaseFollowsExpiry(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		a := w.lock(w.connect(), withDelay)
		h := a.requireHolds()
		// End the grant as Err does after the deadline, before the contender's goroutine has noticed the expiry.
		h.grant.End(recipes.ErrLeaseExpired)
		require.NoError(w, h.Release())
		require.Len(w, w.markers(), 1)
		next := w.lock(w.connect(), withDelay)
		w.requireHeldAfterDelay(next)
	})
}

// TestLockDelay_StartsWhenNextContenderJoins checks that the lock-delay starts when the next contender joins,
// if no contender waited when the lock was lost. The marker of the former holder prevents the servers from
// removing the lock's znode as an empty container.
func TestLockDelay_StartsWhenNextContenderJoins(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		first := w.lock(w.connect(), withDelay)
		w.expire(first.conn)
		w.passTime(5 * time.Minute)
		require.Len(w, w.markers(), 1)
		next := w.lock(w.connect(), withDelay)
		w.requireHeldAfterDelay(next)
	})
}

// TestLockDelay_TryLockWaitsForDelay checks that TryLock waits for the lock-delay. Otherwise programs that only
// call TryLock would never acquire the lock.
func TestLockDelay_TryLockWaitsForDelay(t *testing.T) {
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

// TestLockDelay_DoesNotApplyAfterWaiterGivesUp checks that a waiter that gives up causes no lock-delay, because
// it has not held the lock.
func TestLockDelay_DoesNotApplyAfterWaiterGivesUp(t *testing.T) {
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
		w.requireHeldAfterDelay(last)
		last.release()
	})
}

// TestLockDelay_LostReplyLeavesNoMarker checks that the lock is acquired, and that no marker remains, if the
// reply to the transaction that creates the marker, or to the release, is lost.
func TestLockDelay_LostReplyLeavesNoMarker(t *testing.T) {
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

// TestLockDelay_DeletedWaiterLeavesNoMarker checks that a waiter whose znode is deleted before it creates its
// marker leaves no marker, for which later contenders would have to wait.
func TestLockDelay_DeletedWaiterLeavesNoMarker(t *testing.T) {
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

// TestLockDelay_LockFailsWithoutPermissionForMarker checks that Lock returns ErrPermission if the contender may
// not create its marker.
func TestLockDelay_LockFailsWithoutPermissionForMarker(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		a := w.lock(w.connect(), withDelay)
		refused := w.srv.Before(zktest.Match{Op: zktest.OpMulti, Path: node + "/held*"}, zktest.Fail(zk.ErrNoAuth))
		a.release()
		b := w.lock(w.connect(), withDelay)
		w.passTime(lockDelay + moment)
		b.requireFails(recipes.ErrPermission)
		w.requireCalled(refused)
		refused.Remove()
		require.Len(w, w.markers(), 1, "the marker of the former holder, which was not permitted to delete the marker")
		w.requireContenders()
	})
}

// TestLockDelay_WaiterStaysInQueueAfterLeaseExpires checks that a contender stays in the queue if its lease
// expires while it waits for the lock-delay: no lock was granted to it yet.
func TestLockDelay_WaiterStaysInQueueAfterLeaseExpires(t *testing.T) {
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

// TestLockDelay_AppliesBetweenReadersAndWriters checks that readers wait for the lock-delay after a writer has
// lost the lock, and writers after a reader has lost it, but not readers after a reader.
func TestLockDelay_AppliesBetweenReadersAndWriters(t *testing.T) {
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
		w.requireHeldAfterDelay(x.call)

		r4, r5 := w.read(w.connect(), withDelay), w.read(w.connect(), withDelay)
		w.expire(x.conn)
		w.requireHeldAfterDelay(r4, r5)
		require.Len(w, w.markers(), 2)
		r4.release()
		r5.release()
		require.Empty(w, w.markers())
	})
}

// TestLockDelay_AppliesAfterLossOfDowngradedHold checks that the marker of a writer remains after a downgrade,
// so that the next writer waits for the lock-delay after the loss of the downgraded hold.
func TestLockDelay_AppliesAfterLossOfDowngradedHold(t *testing.T) {
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
		w.requireHeldAfterDelay(next.call)
	})
}

// TestLockDelay_DeletesManyStaleMarkers checks that the next holder deletes all stale markers even if one
// transaction that deletes them all would be larger than a server accepts.
func TestLockDelay_DeletesManyStaleMarkers(t *testing.T) {
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

// TestStaleMarkers_ReturnsMarkersWithoutHolder checks that staleMarkers returns exactly the markers whose
// holders do not exist any more, except the markers of readers if the contender is a reader.
func TestStaleMarkers_ReturnsMarkersWithoutHolder(t *testing.T) {
	const a, b, c = "0000000a-0000-0000-0000-000000000000", "0000000b-0000-0000-0000-000000000000", "0000000c-0000-0000-0000-000000000000"
	children := []string{"held-w-" + a, "held-r-" + b, "held-w-" + c, "_c_" + c + "-__READ__0000000001", "held", "held-w"}
	require.Equal(t, []string{"held-w-" + a, "held-r-" + b}, staleMarkers(children, "held-w-x"))
	require.Equal(t, []string{"held-w-" + a}, staleMarkers(children, "held-r-x"))
	require.Equal(t, []string{"held-r-" + b}, staleMarkers(children, "held-w-"+a))
}

// TestLockDelay_DoesNotApplyAfterReleaseInDowngrade checks that a Release before the expiry of the lease causes
// no lock-delay, even if the holder does not know whether its earlier downgrade was applied.
func TestLockDelay_DoesNotApplyAfterReleaseInDowngrade(t *testing.T) {
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

// TestLockDelay_CancelledJoinLeavesNoMarker checks that no marker remains if the context of Join is cancelled
// after the contender has created its marker and before Wait has returned the hold. The cause is
// ErrLeaseExpired of another hold, which the contender must not take for the expiry of its own lease.
func TestLockDelay_CancelledJoinLeavesNoMarker(t *testing.T) {
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
