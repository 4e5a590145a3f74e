package lock

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// Whoever waits is not woken by what does not concern it: a release wakes the first
// waiter, and that one the next.
func TestTrap52_SemaphoreNoHerd(t *testing.T) {
	runSemaphoreTest(t, func(w *semHarness) {
		var all []*semContender
		for range 20 {
			all = append(all, w.contend(3, 1))
		}
		require.Len(w, w.srv.Watches(semPath), 1, "on the children")
		for i := range 10 {
			who := all[(i+1)%3+i/3*3] // of those who hold
			_, hold, _ := who.result()
			if hold.Err() != nil {
				continue
			}
			first, next := firstTwo(all)
			held := holders(all)
			woken := without(w.woken(func() { who.release() }), held)
			require.Equal(w, []int64{first.session(), next.session()}, woken, "each once")
			first.holds()
			next.waits()
		}
		// A newcomer is told to the first waiter only.
		first, _ := firstTwo(all)
		last := w.connect()
		held := holders(all)
		woken := w.woken(func() { all = append(all, w.acquire(w.semaphore(last, 3), 1)) })
		require.Equal(w, []int64{first.session()}, without(woken, held))
		require.LessOrEqual(w, len(woken), 2, "and to who was the first waiter before")
	})
}

// firstTwo are the first two who wait.
func firstTwo(all []*semContender) (first, next *semContender) {
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

// holders are the sessions of those whose Acquire has returned.
func holders(all []*semContender) (sessions []int64) {
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

// Somebody is let in, and the word of it to the next gets lost. It is repeated: the
// next learns of the other holder's departure, though its predecessor stays.
func TestSemaphoreHintLost(t *testing.T) {
	eachLoss(t, func(w *semHarness, l loss) {
		a, b := w.contend(2, 1), w.contend(2, 1)
		c, d, e := w.contend(2, 1), w.contend(2, 1), w.contend(2, 1)
		lost := l.set(w.srv, zktest.Match{Op: zktest.OpSetData, Path: c.path(), Nth: 1})
		a.release()
		w.pass(time.Second + 100*time.Millisecond)
		w.ran(lost)
		c.holds()
		w.waiting(d, e)
		b.release()
		w.holding(c, d)
		for _, x := range []*semContender{c, d, e} {
			x.release()
		}
		w.clean()
	})
}

// While the word cannot be given at all the holder is cut off, and its znode goes with
// its session; or it comes back in time and repeats it.
func TestSemaphoreHintDelayed(t *testing.T) {
	for _, back := range []bool{true, false} {
		runSemaphoreTest(t, func(w *semHarness) {
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

// The next sets its watch only when the word has been given: it sees by the version
// that something was written.
func TestSemaphoreHintBeforeTheWatch(t *testing.T) {
	runSemaphoreTest(t, func(w *semHarness) {
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

// The word is given while the connection of the next is down.
func TestSemaphoreHintWhileTheNextIsAway(t *testing.T) {
	runSemaphoreTest(t, func(w *semHarness) {
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

// The client library cannot set the watches anew after a break. What they were for is
// read again.
func TestSemaphoreWatchesNotSetAnew(t *testing.T) {
	for i, name := range []string{"the first waiter", "the second"} {
		t.Run(name, func(t *testing.T) {
			runSemaphoreTest(t, func(w *semHarness) {
				a, b := w.contend(2, 1), w.contend(2, 1)
				c, d := w.contend(2, 1), w.contend(2, 1)
				away := []*semContender{c, d}[i]
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

// A holder that may not write its own znode cannot tell the next, who would wait
// beside a free lease. It gives up.
func TestSemaphoreHintRefused(t *testing.T) {
	runSemaphoreTest(t, func(w *semHarness) {
		acl := append(zk.WorldACL(zk.PermAll&^zk.PermWrite), zk.DigestACL(zk.PermAll, "somebody", "else")...)
		contend := func(opts ...recipes.Option) *semContender {
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

// A contender of another library does not tell anybody when it is let in.
func TestSemaphoreBehindAForeignContender(t *testing.T) {
	runSemaphoreTest(t, func(w *semHarness) {
		a, b := w.contend(2, 1), w.contend(2, 1)
		w.stand("_c_597de0d1-c10b-4e1e-a9f7-3a88a1fa7c26-lease-")
		d := w.contend(2, 1)
		a.release()
		d.waits()
		b.release()
		d.holds()
	})
}

// A waiter that has left leaves its watch, which is lost at a reconnect. The next waiter
// on the connection is let in all the same.
func TestTrap27_SemaphoreLeftWatchIsLost(t *testing.T) {
	runSemaphoreTest(t, func(w *semHarness) {
		holder, ahead := w.contend(1, 1), w.contend(1, 1)
		conn := w.connect()
		first := w.acquire(w.semaphore(conn, 1), 1)
		first.waits()
		first.cancel()
		synctest.Wait()
		require.Equal(w, 1, clientWatches(conn), "on the one ahead")
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

// Waiters that come and go leave nothing behind at a holder that stays.
func TestTrap25_SemaphoreWatchesDoNotAddUp(t *testing.T) {
	runSemaphoreTest(t, func(w *semHarness) {
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
			require.LessOrEqual(w, len(watches), 2+3, "two of their own, the line's, the predecessor's, that of x")
			require.LessOrEqual(w, clientWatches(conn), 2*(2+3), "each was set again once")
			for _, x := range []*semContender{second, first, third} {
				x.cancel()
				synctest.Wait()
			}
			require.Zero(w, clientWatches(conn))
			require.Zero(w, clientWatches(third.conn))
			require.Len(w, w.srv.Watches(), 1, "the holder's own")
		}
		holder.release()
		w.clean()
	})
}

// Watches are not taken back when they are no longer needed, and go with the znode.
func TestSemaphoreLeavesNoWatch(t *testing.T) {
	runSemaphoreTest(t, func(w *semHarness) {
		w.setLimit(2)
		a, b, c, d := w.contend(9, 1), w.contend(9, 1), w.contend(9, 1), w.contend(9, 2)
		a.release() // c is let in, and leaves the watch on the line to itself
		c.holds()
		w.setLimit(1)
		d.fails(ErrOverLimit)
		e := w.contend(9, 1)
		b.release()
		c.release()
		e.release()
		w.clean()
		for _, x := range []*semContender{a, b, c, d, e} {
			require.Zero(w, clientWatches(x.conn))
		}
	})
}
