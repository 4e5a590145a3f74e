package lock

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/testenv/lostreply"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestSemaphore_GrantsUpToLimit(t *testing.T) {
	runSemaphoreTest(t, func(w *semHarness) {
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
	runSemaphoreTest(t, func(w *semHarness) {
		var all []*semContender
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
	runSemaphoreTest(t, func(w *semHarness) {
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
	runSemaphoreTest(t, func(w *semHarness) {
		big := w.contend(4, 4)
		var all []*semContender
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
	runSemaphoreTest(t, func(w *semHarness) {
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
	runSemaphoreTest(t, func(w *semHarness) {
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
	runSemaphoreTest(t, func(w *semHarness) {
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
		runSemaphoreTest(t, func(w *semHarness) {
			holder := w.contend(1, 1)
			line := []*semContender{w.contend(1, 1), w.contend(1, 1), w.contend(1, 1)}
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
	runSemaphoreTest(t, func(w *semHarness) {
		holder, big := w.contend(4, 2), w.contend(4, 4)
		a, b, c := w.contend(4, 1), w.contend(4, 1), w.contend(4, 1)
		w.waiting(big, a, b, c)
		big.cancel()
		synctest.Wait()
		w.holding(a, b)
		c.waits()
		holder.release()
		for _, x := range []*semContender{a, b, c} {
			x.release()
		}
		w.clean()
	})
}

func TestSemaphore_ContextIsDone(t *testing.T) {
	runSemaphoreTest(t, func(w *semHarness) {
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

// CURATOR-45, CURATOR-79: a create is applied and its reply is lost. The orphaned znode would
// occupy a lease until the session ends.
func TestTrap01_SemaphoreCreateReplyLost(t *testing.T) {
	forEachSemaphoreLoss(t, func(w *semHarness, l lostreply.Fault) {
		holder, conn := w.contend(3, 1), w.connect()
		session := conn.SessionID()
		lost := l.Set(w.srv, zktest.Match{Op: zktest.OpCreate, Path: semBelow, Session: session, Nth: 1})
		c := w.acquire(w.semaphore(conn, 3), 2)
		w.pass(2 * time.Second)
		w.ran(lost)
		c.holds()
		require.Len(w, w.leases(), 2)
		require.Equal(w, session, conn.SessionID(), "the znode must be found in the same session")
		next := w.contend(3, 1)
		next.waits()
		c.release()
		next.release()
		holder.release()
		w.clean()
	})
}

// CURATOR-498: the search after a create without a reply finds a znode of another session, and
// takes it for that of the contender.
func TestTrap02_SemaphoreZnodeOfOtherSession(t *testing.T) {
	runSemaphoreTest(t, func(w *semHarness) {
		w.contend(2, 1).release()
		conn := w.connect()
		lost := w.srv.After(zktest.Match{Op: zktest.OpCreate, Path: semBelow, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			w.srv.Refuse(true)
			return zktest.Cut(q)
		})
		c := w.acquire(w.semaphore(conn, 2), 2)
		w.ran(lost)
		mine := w.leases()
		require.Len(w, mine, 1)
		w.remove(mine[0])
		other := w.createContender(strings.TrimPrefix(mine[0][:len(mine[0])-10], semPath+"/"))
		w.restore()
		require.NotEqual(w, other, c.path())
		require.Equal(w, []string{c.path()}, w.leases(), "the znode of the other session is removed")
		c.release()
		w.clean()
	})
}

// CURATOR-498: the session expires between the create and the search.
func TestTrap02_SemaphoreSessionExpiresBeforeSearch(t *testing.T) {
	runSemaphoreTest(t, func(w *semHarness) {
		conn := w.connect()
		old := conn.SessionID()
		lost := w.srv.After(zktest.Match{Op: zktest.OpCreate, Path: semBelow, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			w.srv.Refuse(true)
			return zktest.Cut(q)
		})
		c := w.acquire(w.semaphore(conn, 1), 1)
		w.ran(lost)
		require.NoError(w, w.srv.ExpireSession(old))
		w.restore()
		w.pass(timeout)
		require.NotEqual(w, old, conn.SessionID())
		c.release()
		w.clean()
	})
}

// A znode that the search has not found appears later, ahead of the contender's znode. It must not
// be counted, because the contender would wait for itself.
func TestTrap03_SemaphoreOrphanedZnodeAppearsLate(t *testing.T) {
	runSemaphoreTest(t, func(w *semHarness) {
		a, b := w.contend(3, 1), w.contend(3, 1)
		w.remove(w.createContender("gap-")) // leaves a gap in the sequence numbers
		conn := w.connect()
		lost := w.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: semBelow, Session: conn.SessionID(), Nth: 1}, zktest.Cut)
		c := w.acquire(w.semaphore(conn, 3), 2)
		w.pass(2 * time.Second)
		w.ran(lost)
		c.waits()
		first := w.srv.Log().Filter(func(e zktest.Entry) bool { return e.Fate == zktest.CutBefore })[0].Path
		require.Contains(w, first, "-x2-lease-")
		late := func(number string) {
			_, err := conn.Create(first+number, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
			require.NoError(w, err)
			synctest.Wait()
		}
		late("0000000002")
		w.remove(a.path())
		require.NotContains(w, w.leases(), first+"0000000002", "the orphaned znode is removed when it appears")
		c.holds()
		// An orphaned znode that appears even later is removed when the contender leaves.
		late("0000000001")
		b.release()
		require.NoError(w, c.hold.Release())
		w.clean()
	})
}

// kazoo uses one GUID for all creates of an object, so a name can be used again.
func TestTrap04_SemaphoreNewGUIDForEachCreate(t *testing.T) {
	runSemaphoreTest(t, func(w *semHarness) {
		conn := w.connect()
		s := w.semaphore(conn, 1)
		w.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: semBelow, Nth: 2}, zktest.Cut)
		names := map[string]bool{}
		for range 3 {
			c := w.acquire(s, 1)
			w.pass(2 * time.Second)
			c.release()
			w.srv.Sweep()
		}
		for _, e := range w.srv.Log() {
			if e.Op == zktest.OpCreate && strings.HasPrefix(e.Path, semPath+"/") {
				require.False(w, names[e.Path], "%s was used before", e.Path)
				names[e.Path] = true
			}
		}
		require.GreaterOrEqual(w, len(names), 4)
	})
}

// CURATOR-202, CURATOR-678, kazoo #732: a delete fails, the session stays alive, and the lease is
// never free again.
func TestTrap05_SemaphoreDeleteFails(t *testing.T) {
	forEachSemaphoreLoss(t, func(w *semHarness, l lostreply.Fault) {
		c, next := w.contend(1, 1), w.contend(1, 1)
		session := c.session()
		lost := l.Set(w.srv, zktest.Match{Op: zktest.OpDelete, Session: session, Nth: 1})
		require.NoError(w, c.holds().Release())
		w.ran(lost)
		w.pass(time.Second)
		next.release()
		require.Equal(w, session, c.session())
		w.clean()
	})
}

// vitess #15756, etcd #22123: a cleanup with a context that is done has no effect.
func TestTrap06_SemaphoreReleaseAfterContextIsDone(t *testing.T) {
	runSemaphoreTest(t, func(w *semHarness) {
		ctx, cancel := context.WithCancel(w.Context())
		s := w.semaphore(w.connect(), 1)
		h, err := s.Acquire(ctx, 1)
		require.NoError(w, err)
		cancel()
		require.NoError(w, h.Err(), "the context of Acquire does not affect the hold")
		require.NoError(w, h.Release())
		w.clean()
		require.NoError(w, h.Release())
	})
}

// CURATOR-696, CURATOR-604: a contender is admitted although its znode belongs to the previous
// session, and will be deleted.
func TestTrap11_SemaphoreZnodeOfPreviousSession(t *testing.T) {
	for _, first := range []bool{true, false} {
		runSemaphoreTest(t, func(w *semHarness) {
			holder := w.contend(2, 2)
			var between *semContender
			if !first {
				between = w.contend(2, 1)
			}
			c := w.contend(2, 1)
			path := c.path()
			w.cut(c.conn)
			require.NoError(w, w.srv.ExpireSession(c.session()))
			_, err := w.operator.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
			require.NoError(w, err)
			w.remove(holder.path())
			w.srv.Before(zktest.Match{Op: zktest.OpDelete, Path: path, Nth: 1}, zktest.Fail(zk.ErrNoAuth)) // the contender cannot delete the znode
			w.restore()
			w.pass(timeout)
			c.fails(recipes.ErrSessionExpired)
			if !first {
				between.holds()
			}
			exists, _, err := w.operator.Exists(path)
			require.NoError(w, err)
			require.True(w, exists, "the znode does not belong to the contender")
		})
	}
}

// CURATOR-206, kazoo #2: a holder does not learn that its lease is lost.
func TestTrap14_SemaphoreHolderIsNotified(t *testing.T) {
	for name, c := range map[string]struct {
		lose func(w *semHarness, c *semContender)
		want []error
	}{
		"out of reach": {func(w *semHarness, c *semContender) { w.srv.Blackhole(zktest.BothWays, c.session()) }, []error{recipes.ErrLeaseExpired}},
		"deleted":      {func(w *semHarness, c *semContender) { w.remove(c.path()) }, []error{recipes.ErrDeleted}},
		"expired": {func(w *semHarness, c *semContender) {
			require.NoError(w, w.srv.ExpireSession(c.session()))
		}, []error{recipes.ErrSessionExpired, recipes.ErrDeleted}}, // the deletion of the znode is reported first
		"closed": {func(_ *semHarness, c *semContender) { c.conn.Close() }, []error{recipes.ErrConnClosed, recipes.ErrDeleted}},
	} {
		t.Run(name, func(t *testing.T) {
			runSemaphoreTest(t, func(w *semHarness) {
				holder, other := w.contend(2, 1), w.contend(2, 1)
				h := holder.holds()
				got := make(chan error, 1)
				s := w.semaphore(w.connect(), 2)
				go func() {
					_, err := s.Acquire(w.Context(), 1)
					if name == "out of reach" {
						require.ErrorIs(w, h.Err(), recipes.ErrLeaseExpired, "the first hold ends before the second begins")
					}
					got <- err
				}()
				synctest.Wait()
				c.lose(w, holder)
				require.NoError(w, <-got)
				w.pass(2 * time.Second)
				<-h.Done()
				require.Contains(w, c.want, h.Err())
				require.Equal(w, h.Err(), context.Cause(h.Context()))
				_, err := h.Multi()
				require.ErrorIs(w, err, recipes.ErrNotHeld)
				require.NoError(w, other.holds().Err())
				w.srv.Heal()
				if name != "closed" {
					require.NoError(w, h.Release(), "nothing is left of it")
				}
			})
		})
	}
}

// ClickHouse #116690: the server gives the client a new session, without an event for the expiry
// of the old one.
func TestTrap18_SemaphoreSessionReplaced(t *testing.T) {
	runSemaphoreTest(t, func(w *semHarness) {
		a, b := w.contend(1, 1), w.contend(1, 1)
		for _, c := range []*semContender{a, b} {
			w.cut(c.conn)
			require.NoError(w, w.srv.ExpireSession(c.session()))
		}
		w.restore()
		w.pass(2 * time.Second)
		_, h, _ := a.result()
		require.Error(w, h.Err())
		b.fails(recipes.ErrSessionExpired)
		w.clean()
	})
}

// kazoo #116, #482: a contender that waits never learns that its client was closed.
func TestTrap22_SemaphoreConnClosed(t *testing.T) {
	runSemaphoreTest(t, func(w *semHarness) {
		holder := w.contend(1, 1)
		first, second := w.contend(1, 1), w.contend(1, 1)
		for _, c := range []*semContender{first, second} {
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
	runSemaphoreTest(t, func(w *semHarness) {
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
	runSemaphoreTest(t, func(w *semHarness) {
		all := []*semContender{w.contend(2, 1), w.contend(2, 1), w.contend(2, 1), w.contend(2, 1)}
		for i := range 5 {
			for _, path := range append(w.leases(), semPath) {
				_, err := w.operator.Set(path, fmt.Append(nil, i), -1)
				require.NoError(w, err)
				_, err = w.operator.SetACL(path, zk.WorldACL(zk.PermAll), -1)
				require.NoError(w, err)
				w.pass(0)
			}
			w.remove(w.createContender("other-"))
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
	runSemaphoreTest(t, func(w *semHarness) {
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
	runSemaphoreTest(t, func(w *semHarness) {
		w.contend(2, 1).release()
		require.NoError(w, w.srv.SetSequence(semPath, math.MaxInt32-5))
		var all []*semContender
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

// The numbers of a server before 3.6, which continue below zero, are sorted correctly.
func TestTrap32_SemaphoreNegativeNumbers(t *testing.T) {
	runSemaphoreTest(t, func(w *semHarness) {
		w.contend(2, 1).release()
		require.NoError(w, w.srv.SetSequence(semPath, math.MaxInt32))
		first := w.createContender("lease-")
		require.NoError(w, w.srv.SetSequence(semPath, math.MinInt32))
		w.contend(2, 1).fails(recipes.ErrNodeExhausted)
		require.Equal(w, []string{first}, w.leases())
	})
}

// CURATOR-43: other children break the sorting or the parsing, or are counted.
func TestTrap34_SemaphoreUnrecognizedChildren(t *testing.T) {
	runSemaphoreTest(t, func(w *semHarness) {
		w.contend(1, 1).release()
		for _, name := range []string{
			"a", "_c_x", "lease", "lease-", "-x3-lease-", "0000000000", "x-0000000000", "_c_-x3-lease-00000000x0",
			"_c_597de0d1-c10b-4e1e-a9f7-3a88a1fa7c26-x3-other-0000000000", "ünïcode-0000000000", "limit-",
		} {
			_, err := w.operator.Create(semPath+"/"+name, nil, 0, zk.WorldACL(zk.PermAll))
			require.NoError(w, err, name)
		}
		a, b := w.contend(1, 1), w.contend(1, 1)
		a.holds()
		b.waits()
		a.release()
		b.release()
		w.clean()
	})
}

// The znode of the semaphore is removed and re-created: the sequence numbers restart, tokens
// continue to increase.
func TestTrap35_SemaphoreTokensIncrease(t *testing.T) {
	runSemaphoreTest(t, func(w *semHarness) {
		s := w.semaphore(w.connect(), 1)
		last := int64(0)
		for range 3 {
			c := w.acquire(s, 1)
			require.True(w, strings.HasSuffix(c.path(), "-0000000000"))
			require.Greater(w, c.holds().Token(), last)
			last = c.holds().Token()
			c.release()
			require.Equal(w, 1, w.srv.Sweep())
		}
	})
}

// CURATOR-724, kazoo #563: the znode of the semaphore is removed before the create of a
// contender's znode.
func TestTrap36_SemaphoreRemovedBeforeCreate(t *testing.T) {
	runSemaphoreTest(t, func(w *semHarness) {
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

// CURATOR-18, CURATOR-3: the acquisition is cancelled while the create is in flight, and the
// orphaned znode occupies a lease.
func TestTrap40_SemaphoreCancelledDuringCreate(t *testing.T) {
	forEachSemaphoreLoss(t, func(w *semHarness, l lostreply.Fault) {
		ctx, cancel := context.WithCancel(w.Context())
		conn := w.connect()
		w.contend(1, 1).release()
		lost := l.Set(w.srv, zktest.Match{Op: zktest.OpCreate, Path: semBelow, Nth: 1})
		canceled := w.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: semBelow, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			cancel()
			return zktest.Pass(q)
		})
		session := conn.SessionID()
		_, err := w.semaphore(conn, 1).Acquire(ctx, 1)
		require.ErrorIs(w, err, context.Canceled)
		w.pass(2 * timeout)
		w.ran(lost, canceled)
		require.Equal(w, session, conn.SessionID(), "the session must not have ended")
		w.clean()
	})
}

// CURATOR-376: the znode of a failed attempt exists for a moment, and blocks others.
func TestTrap45_SemaphoreFailedAttemptLeavesNoZnode(t *testing.T) {
	runSemaphoreTest(t, func(w *semHarness) {
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
	runSemaphoreTest(t, func(w *semHarness) {
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
