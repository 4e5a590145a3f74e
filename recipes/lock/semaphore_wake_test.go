package lock

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// A waiting contender is woken only if that is necessary: a release wakes the first waiter, which
// wakes the next one.
func TestTrap52_SemaphoreNoHerd(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		var all []*call
		for range 20 {
			all = append(all, w.contend(3, 1))
		}
		require.Len(w, w.srv.Watches(semPath), 1, "the watch on the children")
		for i := range 10 {
			who := all[(i+1)%3+i/3*3] // a holder
			_, hold, _ := who.result()
			if hold.Err() != nil {
				continue
			}
			first, next := firstTwo(all)
			held := holders(all)
			woken := without(w.woken(func() { who.release() }), held)
			require.Equal(w, []int64{first.session(), next.session()}, woken, "each is woken once")
			first.holds()
			next.waits()
		}
		// A new contender wakes only the first waiter.
		first, _ := firstTwo(all)
		last := w.connect()
		held := holders(all)
		woken := w.woken(func() { all = append(all, w.acquire(w.semaphore(last, 3), 1)) })
		require.Equal(w, []int64{first.session()}, without(woken, held))
		require.LessOrEqual(w, len(woken), 2, "it may also wake the previous first waiter")
	})
}

// firstTwo returns the first two waiting contenders.
func firstTwo(all []*call) (first, next *call) {
	for _, c := range all {
		switch over, _, _ := c.result(); {
		case over:
		case first == nil:
			first = c
		default:
			return first, c
		}
	}
	return first, nil
}

// holders returns the sessions of the contenders whose Acquire has returned.
func holders(all []*call) (sessions []int64) {
	for _, c := range all {
		if over, _, _ := c.result(); over {
			sessions = append(sessions, c.session())
		}
	}
	return sessions
}

func without(sessions, others []int64) []int64 {
	return slices.DeleteFunc(slices.Clone(sessions), func(s int64) bool { return slices.Contains(others, s) })
}

// A contender is admitted, and the write that wakes its follower is lost. It is retried: the
// follower notices the departure of the other holder, although its predecessor stays.
func TestSemaphoreWake_WriteIsLost(t *testing.T) {
	forEachSemaphoreLoss(t, func(w *harness, l bubble.Fault) {
		a, b := w.contend(2, 1), w.contend(2, 1)
		c, d, e := w.contend(2, 1), w.contend(2, 1), w.contend(2, 1)
		lost := l.Set(w.srv, zktest.Match{Op: zktest.OpSetData, Path: c.path(), Nth: 1})
		a.release()
		w.pass(time.Second + 100*time.Millisecond)
		w.ran(lost)
		c.holds()
		w.waiting(d, e)
		b.release()
		w.holding(c, d)
		for _, x := range []*call{c, d, e} {
			x.release()
		}
		w.clean()
	})
}

// If the write cannot be sent because the holder is disconnected, its znode is deleted with its
// session, or it reconnects in time and retries the write.
func TestSemaphoreWake_HolderIsDisconnected(t *testing.T) {
	for _, back := range []bool{true, false} {
		runSemaphoreTest(t, func(w *harness) {
			a, b := w.contend(2, 1), w.contend(2, 1)
			c, d := w.contend(2, 1), w.contend(2, 1)
			session := c.session()
			silent := w.srv.Before(zktest.Match{Op: zktest.OpSetData, Path: c.path(), Nth: 1}, func(q *zktest.Request) zktest.Verdict {
				w.srv.Refuse(true)
				return zktest.Cut(q)
			})
			a.release()
			w.ran(silent)
			if back {
				w.restore()
			}
			w.pass(2 * timeout)
			w.restore()
			require.Equal(w, back, c.session() == session)
			if back {
				d.waits()
				b.release()
				w.holding(c, d)
				c.release()
			} else {
				w.holding(b, d)
				require.ErrorIs(w, c.hold.Err(), recipes.ErrLeaseExpired)
				b.release()
			}
			d.release()
			require.Empty(w, w.leases())
		})
	}
}

// If the follower sets its watch after the write, it notices the write by the version.
func TestSemaphoreWake_WriteBeforeWatch(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		a, b, c := w.contend(2, 1), w.contend(2, 1), w.contend(2, 1)
		conn := w.connect()
		told := w.srv.After(zktest.Match{Op: zktest.OpSetData, Path: c.path(), Nth: 1}, zktest.Pass)
		late := w.srv.Before(zktest.Match{Op: zktest.OpGetData, Path: c.path(), Nth: 1, Session: conn.SessionID()}, func(q *zktest.Request) zktest.Verdict {
			require.NoError(w, w.operator.Delete(a.path(), -1))
			<-told.Ran()
			return zktest.Pass(q)
		})
		d := w.acquire(w.semaphore(conn, 2), 1)
		w.ran(told, late)
		w.holding(b, c)
		d.waits()
		b.release()
		w.holding(c, d)
	})
}

// The write happens while the connection of the follower is down.
func TestSemaphoreWake_FollowerIsDisconnected(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		a, b := w.contend(2, 1), w.contend(2, 1)
		c, d := w.contend(2, 1), w.contend(2, 1)
		w.cut(d.conn)
		a.release()
		c.holds()
		w.restore()
		d.waits()
		b.release()
		w.holding(c, d)
	})
}

// If the client library fails to set the watches again after a reconnect, the contender reads the
// watched znodes again.
func TestSemaphoreWake_WatchesAreLost(t *testing.T) {
	for i, name := range []string{"the first waiter", "the second"} {
		t.Run(name, func(t *testing.T) {
			runSemaphoreTest(t, func(w *harness) {
				a, b := w.contend(2, 1), w.contend(2, 1)
				c, d := w.contend(2, 1), w.contend(2, 1)
				away := []*call{c, d}[i]
				failed := w.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: away.session()}, zktest.Fail(zk.ErrAPIError))
				w.cut(away.conn)
				a.release()
				w.restore()
				w.ran(failed)
				c.holds()
				d.waits()
				if i == 1 {
					b.release()
					d.holds()
				}
			})
		})
	}
}

// A holder without the permission to write its znode cannot wake its follower, which would wait
// although a lease is free. So the hold ends.
func TestSemaphoreWake_NoPermission(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		acl := append(zk.WorldACL(zk.PermAll&^zk.PermWrite), zk.DigestACL(zk.PermAll, "somebody", "else")...)
		contend := func(opts ...Option) *call {
			return w.acquire(w.semaphore(w.connect(), 2, opts...), 1)
		}
		a, b := contend(), contend()
		c, d := contend(recipes.WithACL(acl)), contend()
		w.waiting(c, d)
		a.release()
		w.pass(time.Second)
		_, hold, _ := c.result()
		require.ErrorIs(w, hold.Err(), recipes.ErrPermission)
		w.holding(b, d)
		b.release()
		d.release()
		w.clean()
	})
}

// A contender of another library does not write its znode when it is admitted.
func TestSemaphoreWake_PredecessorOfOtherLibrary(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		a, b := w.contend(2, 1), w.contend(2, 1)
		w.createLease("_c_597de0d1-c10b-4e1e-a9f7-3a88a1fa7c26-lease-")
		d := w.contend(2, 1)
		a.release()
		d.waits()
		b.release()
		d.holds()
	})
}

// The watch of a contender that has left stays in the pool, and is lost at a reconnect. The next
// contender on the connection is admitted nevertheless.
func TestTrap27_SemaphorePooledWatchIsLost(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		holder, ahead := w.contend(1, 1), w.contend(1, 1)
		conn := w.connect()
		first := w.acquire(w.semaphore(conn, 1), 1)
		first.waits()
		first.cancel()
		synctest.Wait()
		require.Equal(w, 1, bubble.Watches(conn), "the watch on the predecessor")
		refused := w.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: conn.SessionID(), Nth: 1}, zktest.Fail(zktest.Code(-127)))
		w.srv.DropConnections(conn.SessionID())
		w.pass(timeout)
		w.ran(refused)
		second := w.acquire(w.semaphore(conn, 1), 1)
		second.waits()
		w.pass(3 * time.Second)
		holder.release()
		ahead.holds()
		ahead.release()
		second.holds()
		second.release()
		w.clean()
	})
}

// Contenders that wait for a holder and leave do not leave watches on its znode.
func TestTrap25_SemaphoreWatchesDoNotAddUp(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		holder := w.contend(2, 2)
		conn := w.connect()
		for range 10 {
			first := w.acquire(w.semaphore(conn, 2), 1)
			second := w.acquire(w.semaphore(conn, 2), 1)
			third := w.contend(2, 1)
			w.srv.DropConnections(conn.SessionID())
			w.pass(1100 * time.Millisecond)
			for range 5 {
				x := w.acquire(w.semaphore(conn, 2), 1)
				x.cancel()
				synctest.Wait()
			}
			w.waiting(first, second, third)
			watches := slices.DeleteFunc(w.srv.Watches(), func(x zktest.Watch) bool { return x.Session != conn.SessionID() })
			require.LessOrEqual(w, len(watches), 2+3, "their znodes, the queue, the predecessor, and x")
			require.LessOrEqual(w, bubble.Watches(conn), 2*(2+3), "each watch was set again once")
			for _, x := range []*call{second, first, third} {
				x.cancel()
				synctest.Wait()
			}
			require.Zero(w, bubble.Watches(conn))
			require.Zero(w, bubble.Watches(third.conn))
			require.Len(w, w.srv.Watches(), 1, "the watch of the holder on its znode")
		}
		holder.release()
		w.clean()
	})
}

// Watches that are not needed any more are removed when their znode is deleted.
func TestSemaphoreWake_LeavesNoWatch(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		w.setLimit(2)
		a, b, c, d := w.contend(9, 1), w.contend(9, 1), w.contend(9, 1), w.contend(9, 2)
		a.release() // c is admitted, and does not use the watch on the queue any more
		c.holds()
		w.setLimit(1)
		d.fails(ErrOverLimit)
		e := w.contend(9, 1)
		b.release()
		c.release()
		e.release()
		w.clean()
		for _, x := range []*call{a, b, c, d, e} {
			require.Zero(w, bubble.Watches(x.conn))
		}
	})
}
