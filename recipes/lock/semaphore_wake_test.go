package lock

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// wokenBesides returns the sessions to which the server sends events of watches while f runs, once for each
// event. It omits the sessions of calls.
func (w *harness) wokenBesides(calls []*call, f func()) (sessions []int64) {
	begin := len(w.srv.Log())
	f()
	w.passTime(0)
	for _, e := range w.srv.Log()[begin:] {
		if e.Op == zktest.OpNotification && !slices.ContainsFunc(calls, func(c *call) bool { return c.session() == e.Session }) {
			sessions = append(sessions, e.Session)
		}
	}
	return sessions
}

// TestSemaphore_ReleaseWakesOnlyNextTwoWaiters checks that a release wakes only the first waiter, which then
// wakes the next one, and that a new contender wakes only the first waiter.
// Scenario 52 of docs/traps.md.
func TestSemaphore_ReleaseWakesOnlyNextTwoWaiters(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		var all []*call
		for range 20 {
			all = append(all, w.contend(3, 1))
		}
		require.Len(w, w.srv.Watches(node), 1, "the watch on the children")
		holders := slices.Clone(all[:3])
		for i := range 10 {
			first, next := all[3+i], all[4+i]
			woken := w.wokenBesides(holders, holders[i*2%3].release)
			require.Equal(w, []int64{first.session(), next.session()}, woken, "each is woken once")
			first.requireHolds()
			next.requireWaits()
			holders[i*2%3] = first
		}
		// A new contender wakes only the first waiter.
		last := w.connect()
		woken := w.wokenBesides(holders, func() { w.acquire(w.semaphore(last, 3), 1) })
		require.Equal(w, []int64{all[13].session()}, woken)
	})
}

// TestSemaphoreWake_RetriesLostWrite checks that a holder retries the write of its znode that wakes its
// follower if the write is lost. So the follower notices that another holder has left, although its predecessor
// stays.
func TestSemaphoreWake_RetriesLostWrite(t *testing.T) {
	forEachLoss(t, briefLosses, 1, func(w *harness, l bubble.Fault) {
		a, b := w.contend(2, 1), w.contend(2, 1)
		c, d, e := w.contend(2, 1), w.contend(2, 1), w.contend(2, 1)
		lost := l.Set(w.srv, zktest.Match{Op: zktest.OpSetData, Path: c.path(), Nth: 1})
		a.release()
		w.passTime(time.Second + 100*time.Millisecond)
		w.requireCalled(lost)
		c.requireHolds()
		w.requireWaiting(d, e)
		b.release()
		w.requireHolding(c, d)
		c.release()
		e.requireHolds()
	})
}

// TestSemaphoreWake_AdmitsFollowerIfHolderDisconnects checks that a contender is admitted although its
// predecessor is disconnected before it can write its znode to wake the contender: the predecessor either
// retries the write after a reconnect, or loses its znode with its session.
func TestSemaphoreWake_AdmitsFollowerIfHolderDisconnects(t *testing.T) {
	for _, back := range []bool{true, false} {
		runTest(t, 1, func(w *harness) {
			a, b := w.contend(2, 1), w.contend(2, 1)
			c, d := w.contend(2, 1), w.contend(2, 1)
			session := c.session()
			silent := w.srv.Before(zktest.Match{Op: zktest.OpSetData, Path: c.path(), Nth: 1}, func(q *zktest.Request) zktest.Verdict {
				w.srv.Refuse(true)
				return zktest.Cut(q)
			})
			a.release()
			w.requireCalled(silent)
			if back {
				w.restore()
			}
			w.passTime(2 * timeout)
			w.restore()
			require.Equal(w, back, c.session() == session)
			if back {
				d.requireWaits()
				b.release()
				w.requireHolding(c, d)
			} else {
				w.requireHolding(b, d)
				require.ErrorIs(w, c.hold.Err(), recipes.ErrLeaseExpired)
			}
		})
	}
}

// TestSemaphoreWake_NoticesWriteBeforeWatch checks that a contender notices by the version of its predecessor's
// znode that the predecessor has written the znode before the contender has set its watch.
func TestSemaphoreWake_NoticesWriteBeforeWatch(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		a, b, c := w.contend(2, 1), w.contend(2, 1), w.contend(2, 1)
		conn := w.connect()
		told := w.srv.After(zktest.Match{Op: zktest.OpSetData, Path: c.path(), Nth: 1}, zktest.Pass)
		late := w.srv.Before(zktest.Match{Op: zktest.OpGetData, Path: c.path(), Nth: 1, Session: conn.SessionID()}, func(q *zktest.Request) zktest.Verdict {
			w.remove(a.path())
			<-told.Ran()
			return zktest.Pass(q)
		})
		d := w.acquire(w.semaphore(conn, 2), 1)
		w.requireCalled(told, late)
		w.requireHolding(b, c)
		d.requireWaits()
		b.release()
		w.requireHolding(c, d)
	})
}

// TestSemaphoreWake_AdmitsWaiterAfterReconnect checks that a waiter is admitted that was disconnected while the
// znode that it watches was written or deleted, even if the client library fails to set its watches again.
func TestSemaphoreWake_AdmitsWaiterAfterReconnect(t *testing.T) {
	for i, name := range []string{"the first waiter", "the second"} {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, watches are lost: %v", name, lost), func(t *testing.T) {
				runTest(t, 1, func(w *harness) {
					a, b := w.contend(2, 1), w.contend(2, 1)
					c, d := w.contend(2, 1), w.contend(2, 1)
					away := []*call{c, d}[i]
					if lost {
						failed := w.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: away.session()}, zktest.Fail(zk.ErrAPIError))
						defer w.requireCalled(failed)
					}
					w.cutConnection(away.conn)
					a.release()
					w.restore()
					c.requireHolds()
					d.requireWaits()
					b.release()
					w.requireHolding(c, d)
				})
			})
		}
	}
}

// TestSemaphoreWake_HoldEndsWithoutPermissionToWrite checks that the hold of a contender ends if the contender
// may not write its znode to wake its follower. Otherwise the follower would wait although a lease is free.
func TestSemaphoreWake_HoldEndsWithoutPermissionToWrite(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		acl := append(zk.WorldACL(zk.PermAll&^zk.PermWrite), zk.DigestACL(zk.PermAll, "somebody", "else")...)
		contend := func(opts ...Option) *call {
			return w.acquire(w.semaphore(w.connect(), 2, opts...), 1)
		}
		a, b := contend(), contend()
		c, d := contend(recipes.WithACL(acl)), contend()
		w.requireWaiting(c, d)
		a.release()
		w.passTime(time.Second)
		require.ErrorIs(w, c.hold.Err(), recipes.ErrPermission)
		w.requireHolding(b, d)
	})
}

// TestSemaphoreWake_AdmitsFollowerOfOtherLibrary checks that a contender is admitted whose predecessor belongs
// to another library, which does not write its znode when it is admitted.
func TestSemaphoreWake_AdmitsFollowerOfOtherLibrary(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		a, b := w.contend(2, 1), w.contend(2, 1)
		w.createContender("-lease-")
		d := w.contend(2, 1)
		a.release()
		d.requireWaits()
		b.release()
		d.requireHolds()
	})
}

// TestSemaphore_AdmitsContenderIfPooledWatchIsLost checks that a contender is admitted although the connection
// lost, at a reconnect, the watch that it reuses: the watch of an earlier contender that has left.
// Scenario 27 of docs/traps.md.
func TestSemaphore_AdmitsContenderIfPooledWatchIsLost(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		holder, ahead := w.contend(1, 1), w.contend(1, 1)
		conn := w.connect()
		first := w.acquire(w.semaphore(conn, 1), 1)
		first.requireWaits()
		first.cancel()
		w.passTime(0)
		require.Equal(w, 1, bubble.Watches(conn), "the watch on the predecessor")
		refused := w.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: conn.SessionID(), Nth: 1}, zktest.Fail(zktest.Code(-127)))
		w.srv.DropConnections(conn.SessionID())
		w.passTime(timeout)
		w.requireCalled(refused)
		second := w.acquire(w.semaphore(conn, 1), 1)
		second.requireWaits()
		w.passTime(3 * time.Second)
		holder.release()
		ahead.requireHolds()
		ahead.release()
		second.requireHolds()
	})
}

// TestSemaphore_WatchesDoNotAddUp checks that contenders that wait for a holder and leave do not leave watches
// on the holder's znode.
// Scenario 25 of docs/traps.md.
func TestSemaphore_WatchesDoNotAddUp(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		w.contend(2, 2)
		conn := w.connect()
		for range 10 {
			first := w.acquire(w.semaphore(conn, 2), 1)
			second := w.acquire(w.semaphore(conn, 2), 1)
			third := w.contend(2, 1)
			w.srv.DropConnections(conn.SessionID())
			w.passTime(1100 * time.Millisecond)
			for range 5 {
				x := w.acquire(w.semaphore(conn, 2), 1)
				x.cancel()
				w.passTime(0)
			}
			w.requireWaiting(first, second, third)
			watches := slices.DeleteFunc(w.srv.Watches(), func(x zktest.Watch) bool { return x.Session != conn.SessionID() })
			require.LessOrEqual(w, len(watches), 2+3, "their znodes, the queue, the predecessor, and x")
			require.LessOrEqual(w, bubble.Watches(conn), 2*(2+3), "each watch was set again once")
			for _, x := range []*call{second, first, third} {
				x.cancel()
				w.passTime(0)
			}
			require.Zero(w, bubble.Watches(conn))
			require.Zero(w, bubble.Watches(third.conn))
			require.Len(w, w.srv.Watches(), 1, "the watch of the holder on its znode")
		}
	})
}

// TestSemaphoreWake_RemovesWatchesOfDeletedZnodes checks that watches that no contender needs any more are
// removed when their znode is deleted.
func TestSemaphoreWake_RemovesWatchesOfDeletedZnodes(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		w.setLimit(2)
		a, b, c, d := w.contend(9, 1), w.contend(9, 1), w.contend(9, 1), w.contend(9, 2)
		a.release() // the contender c is admitted, and does not need the watch on the queue any more
		c.requireHolds()
		w.setLimit(1)
		d.requireFails(ErrOverLimit)
		e := w.contend(9, 1)
		b.release()
		c.release()
		e.release()
		w.requireContenders()
		for _, x := range []*call{a, b, c, d, e} {
			require.Zero(w, bubble.Watches(x.conn))
		}
	})
}
