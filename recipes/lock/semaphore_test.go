package lock

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestSemaphore_GrantsUpToLimit(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		a, b, c, d := w.contend(2, 1), w.contend(2, 1), w.contend(2, 1), w.contend(2, 1)
		w.holding(a, b)
		w.waiting(c, d)
		b.release()
		c.holds()
		w.waiting(d)
		a.release()
		d.holds()
		require.Greater(w, d.holds().Token(), c.holds().Token())
		_, err := d.holds().Multi(&zk.CreateRequest{Path: "/written", Acl: zk.WorldACL(zk.PermAll)})
		require.NoError(w, err)
		old := c.holds()
		c.release()
		require.ErrorIs(w, old.Err(), recipes.ErrReleased)
		_, err = old.Multi()
		require.ErrorIs(w, err, recipes.ErrNotHeld)
		require.NoError(w, old.Release(), "again")
		d.release()
		w.clean()
	})
}

// The second holder leaves before the first: the departure of any holder counts, and not only that
// of the (rank - limit)-th contender.
func TestSemaphore_HoldersLeaveInAnyOrder(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		var all []*call
		for range 8 {
			all = append(all, w.contend(3, 1))
		}
		for _, i := range []int{1, 2, 3, 0, 4, 6} { // the order in which holders leave
			w.holding(all[i])
			all[i].release()
		}
		w.holding(all[5], all[7])
		all[5].release()
		all[7].release()
		w.clean()
	})
}

func TestSemaphore_SeveralLeases(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		a, b := w.contend(5, 3), w.contend(5, 2)
		w.holding(a, b)
		big, small := w.contend(5, 4), w.contend(5, 1)
		w.waiting(big, small)
		b.release()
		w.waiting(big, small) // small would be within the limit, and does not overtake
		a.release()
		w.holding(big, small)
		last := w.contend(5, 5)
		w.waiting(last)
		small.release()
		w.waiting(last)
		big.release()
		last.release()
		w.clean()
	})
}

// One departure frees leases for several contenders, which are admitted one after another.
func TestSemaphore_OneReleaseAdmitsSeveral(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		big := w.contend(4, 4)
		var all []*call
		for range 6 {
			all = append(all, w.contend(4, 1))
		}
		w.waiting(all...)
		big.release()
		w.holding(all[:4]...)
		w.waiting(all[4:]...)
		for _, c := range all {
			c.release()
		}
		w.clean()
	})
}

func TestSemaphore_OverLimit(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		c := w.contend(2, 3)
		c.fails(ErrOverLimit)
		w.clean()
		s := w.semaphore(w.connect(), 2)
		_, err := s.TryAcquire(w.Context(), 3)
		require.ErrorIs(w, err, ErrOverLimit)
		for _, n := range []int{0, -1, 1_000_000_000} {
			_, err = s.Acquire(w.Context(), n)
			require.ErrorIs(w, err, recipes.ErrInvalid)
			_, err = s.TryAcquire(w.Context(), n)
			require.ErrorIs(w, err, recipes.ErrInvalid)
			require.ErrorIs(w, s.SetLimit(w.Context(), n), recipes.ErrInvalid)
			_, err = NewSemaphore(s.setup.Conn, semPath, n)
			require.ErrorIs(w, err, recipes.ErrInvalid)
		}
	})
}

func TestSemaphore_InvalidArguments(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		_, err := NewSemaphore(nil, semPath, 1)
		require.ErrorIs(w, err, recipes.ErrInvalid)
		_, err = NewSemaphore(w.operator, "sem", 1)
		require.ErrorIs(w, err, recipes.ErrInvalid)
		_, err = NewSemaphore(w.operator, semPath, 1, recipes.WithACL(zk.WorldACL(zk.PermAll&^zk.PermWrite)))
		require.ErrorIs(w, err, recipes.ErrInvalid, "a holder could not wake its follower")
		_, err = NewSemaphore(w.operator, semPath, 1, WithCuratorLayout(), recipes.WithKazooLayout())
		require.ErrorIs(w, err, recipes.ErrInvalid)
		_, err = NewSemaphore(w.operator, semPath, 0, WithCuratorLayout())
		require.ErrorIs(w, err, recipes.ErrInvalid)
	})
}

// TryAcquire finds out by a listing whether it would have to wait.
func TestSemaphore_TryAcquire(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		conn := w.connect()
		s := w.semaphore(conn, 3)
		first, err := s.TryAcquire(w.Context(), 2)
		require.NoError(w, err)
		log := w.sent(conn.SessionID(), func() {
			_, err = s.TryAcquire(w.Context(), 2)
			require.ErrorIs(w, err, ErrHeld)
		})
		require.Len(w, log, 1, "%v", log)
		second, err := s.TryAcquire(w.Context(), 1)
		require.NoError(w, err)
		require.NoError(w, second.Release())
		// A lease is free, but another contender waits for more leases.
		waiter := w.contend(3, 2)
		waiter.waits()
		_, err = s.TryAcquire(w.Context(), 1)
		require.ErrorIs(w, err, ErrHeld)
		require.NoError(w, first.Release())
		synctest.Wait()
		waiter.release()
		w.clean()
	})
}

// A waiting contender at any position gives up: later contenders are admitted, and its znode is
// removed.
func TestSemaphore_WaiterGivesUp(t *testing.T) {
	for gone := range 3 {
		runSemaphoreTest(t, func(w *harness) {
			holder := w.contend(1, 1)
			line := []*call{w.contend(1, 1), w.contend(1, 1), w.contend(1, 1)}
			line[gone].cancel()
			synctest.Wait()
			line[gone].fails(context.Canceled)
			require.Len(w, w.leases(), 3)
			holder.release()
			for i, c := range line {
				if i != gone {
					c.release()
				}
			}
			w.clean()
		})
	}
}

// A large request that blocks later contenders gives up, and they are admitted.
func TestSemaphore_LargeRequestGivesUp(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		holder, big := w.contend(4, 2), w.contend(4, 4)
		a, b, c := w.contend(4, 1), w.contend(4, 1), w.contend(4, 1)
		w.waiting(big, a, b, c)
		big.cancel()
		synctest.Wait()
		w.holding(a, b)
		c.waits()
		holder.release()
		for _, x := range []*call{a, b, c} {
			x.release()
		}
		w.clean()
	})
}

func TestSemaphore_ContextIsDone(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		holder := w.contend(1, 1)
		waiter := w.contend(1, 1)
		begin := time.Now()
		w.srv.Blackhole(zktest.ToServer, waiter.session()) // the removal of its znode takes some time
		waiter.cancel()
		synctest.Wait()
		over, _, _ := waiter.result()
		require.True(w, over, "immediately")
		require.Equal(w, begin, time.Now())
		w.srv.Heal()
		w.pass(timeout)
		require.Len(w, w.leases(), 1)
		holder.release()
		w.clean()
	})
}

// kazoo #116, #482: a contender that waits never learns that its client was closed.
func TestTrap22_SemaphoreConnClosed(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		holder := w.contend(1, 1)
		first, second := w.contend(1, 1), w.contend(1, 1)
		for _, c := range []*call{first, second} {
			c.conn.Close()
			w.pass(2 * time.Second)
			c.fails(recipes.ErrConnClosed)
			s := w.semaphore(c.conn, 1)
			_, err := s.Acquire(w.Context(), 1)
			require.ErrorIs(w, err, recipes.ErrConnClosed)
			_, err = s.TryAcquire(w.Context(), 1)
			require.ErrorIs(w, err, recipes.ErrConnClosed)
			_, err = s.Limit(w.Context())
			require.ErrorIs(w, err, recipes.ErrConnClosed)
			require.ErrorIs(w, s.SetLimit(w.Context(), 2), recipes.ErrConnClosed)
		}
		holder.release()
		w.clean()
	})
}

// CURATOR-107, helix #44: the predecessor is deleted before it is watched.
func TestTrap24_SemaphorePredecessorIsDeleted(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		holder, ahead := w.contend(1, 1), w.contend(1, 1)
		gone := w.srv.Before(zktest.Match{Op: zktest.OpGetData, Path: ahead.path(), Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			_ = w.operator.Delete(ahead.path(), -1)
			return zktest.Pass(q)
		})
		c := w.contend(1, 1)
		w.ran(gone)
		w.pass(time.Second)
		ahead.fails(recipes.ErrDeleted)
		c.waits()
		holder.release()
		c.release()
		w.clean()
	})
}

// CURATOR-258, CURATOR-329: an unrelated event consumes the watch, which is not set again.
func TestTrap26_SemaphoreUnrelatedEvents(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		all := []*call{w.contend(2, 1), w.contend(2, 1), w.contend(2, 1), w.contend(2, 1)}
		for i := range 5 {
			for _, path := range append(w.leases(), semPath) {
				_, err := w.operator.Set(path, fmt.Append(nil, i), -1)
				require.NoError(w, err)
				_, err = w.operator.SetACL(path, zk.WorldACL(zk.PermAll), -1)
				require.NoError(w, err)
				w.pass(0)
			}
			w.removeAndWait(w.createLease("other-"))
			w.holding(all[:2]...)
			w.waiting(all[2:]...)
		}
		all[1].release()
		w.holding(all[0], all[2])
		all[3].waits()
		all[0].release()
		all[2].release()
		all[3].release()
		w.clean()
	})
}

// CURATOR-623, CURATOR-97: the watched change happens while the connection is down.
func TestTrap27_SemaphoreWatchesLost(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		a, b := w.contend(2, 1), w.contend(2, 1)
		c, d, e := w.contend(2, 1), w.contend(2, 1), w.contend(2, 1)
		w.cut(c.conn)
		a.release()
		w.restore()
		w.holding(b, c)
		w.waiting(d, e)
		w.cut(e.conn)
		d.cancel()
		synctest.Wait()
		b.release()
		w.restore()
		w.holding(c, e)
		c.release()
		e.release()
		w.clean()
	})
}

// ZOOKEEPER-2944, ZOOKEEPER-4706: the sequence numbers are exhausted while
// contenders wait. They are admitted in their order. New contenders are rejected,
// because servers since 3.6 assign the same number to all of them.
func TestTrap32_SemaphoreSequenceNumbersExhausted(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		w.contend(2, 1).release()
		require.NoError(w, w.srv.SetSequence(semPath, math.MaxInt32-5))
		var all []*call
		for range 4 {
			all = append(all, w.contend(2, 1))
		}
		w.setLimit(3) // takes the last numbers
		for range 3 {
			w.contend(2, 1).fails(recipes.ErrNodeExhausted)
		}
		require.Len(w, w.leases(), 4)
		w.holding(all[:3]...)
		w.setLimit(1)
		w.setLimit(2)
		require.Equal(w, 2, w.limit())
		all[1].release()
		w.waiting(all[3])
		all[2].release()
		w.holding(all[0], all[3])
		all[0].release()
		all[3].release()
		w.clean()
	})
}

// CURATOR-724, kazoo #563: the znode of the semaphore is removed before the create of a
// contender's znode.
func TestTrap36_SemaphoreRemovedBeforeCreate(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		w.contend(1, 1).release()
		swept := w.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: semBelow, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			w.srv.Sweep()
			return zktest.Pass(q)
		})
		w.contend(1, 1).release()
		w.ran(swept)
		swept = w.srv.Before(zktest.Match{Op: zktest.OpMulti, Path: semPath, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			w.srv.Sweep()
			return zktest.Pass(q)
		})
		w.setLimit(4)
		w.ran(swept)
		require.Equal(w, 4, w.limit())
	})
}

// CURATOR-376: the znode of a failed attempt exists for a moment, and blocks others.
func TestTrap45_SemaphoreFailedAttemptLeavesNoZnode(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		s := w.semaphore(w.connect(), 2)
		other := w.semaphore(w.connect(), 2)
		var taken *Hold
		quicker := w.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: semBelow, Session: s.setup.Conn.SessionID(), Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			var err error
			taken, err = other.Acquire(w.Context(), 2)
			require.NoError(w, err)
			return zktest.Pass(q)
		})
		_, err := s.TryAcquire(w.Context(), 1)
		require.ErrorIs(w, err, ErrHeld)
		w.ran(quicker)
		require.Len(w, w.leases(), 1, "its znode is removed before it returns")
		require.NoError(w, taken.Release())
		w.clean()
	})
}

// CURATOR-335, CURATOR-315, CURATOR-462, CURATOR-595, kazoo #213: leases without a holder are
// counted, or more leases are granted than the limit.
func TestTrap49_SemaphoreCountsExistingLeases(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		for range 20 {
			a, b, c := w.contend(3, 1), w.contend(3, 2), w.contend(3, 3)
			w.holding(a, b)
			c.waits()
			require.NoError(w, w.srv.ExpireSession(b.session()))
			d := w.contend(3, 1)
			d.cancel()
			c.cancel()
			w.pass(0)
			e := w.contend(3, 2)
			e.holds()
			f := w.contend(3, 1)
			f.waits()
			a.release()
			f.release()
			e.release()
			require.Empty(w, w.leases())
		}
	})
}
