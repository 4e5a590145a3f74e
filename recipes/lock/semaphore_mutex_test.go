package lock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// companies are the semaphores of other libraries.
var companies = map[string]func(w *semHarness, conn *zk.Conn, limit int) *Semaphore{
	"Curator": func(w *semHarness, conn *zk.Conn, limit int) *Semaphore {
		s, err := NewCuratorSemaphore(conn, semPath, limit, semOptions(nil)...)
		require.NoError(w, err)
		return s
	},
	"kazoo": func(w *semHarness, conn *zk.Conn, limit int) *Semaphore {
		return w.semaphore(conn, limit, recipes.WithLayout(recipes.Kazoo))
	},
}

func eachCompany(t *testing.T, f func(w *semHarness, contend func(limit, n int) *semContender)) {
	for name, make := range companies {
		t.Run(name, func(t *testing.T) {
			runSemaphoreTest(t, func(w *semHarness) {
				f(w, func(limit, n int) *semContender { return w.acquire(make(w, w.connect(), limit), n) })
			})
		})
	}
}

func TestSemaphoreInCompany(t *testing.T) {
	eachCompany(t, func(w *semHarness, contend func(limit, n int) *semContender) {
		a, b := contend(3, 1), contend(3, 2)
		w.holding(a, b)
		require.Len(w, w.leases(), 3)
		c, d := contend(3, 2), contend(3, 1)
		w.waiting(c, d)
		a.release()
		w.waiting(c, d)
		b.release()
		w.holding(c, d)
		require.Greater(w, d.holds().Token(), c.holds().Token())
		_, err := c.holds().Multi()
		require.NoError(w, err)
		contend(3, 4).fails(ErrOverLimit)
		c.release()
		d.release()
		w.clean()
		for _, x := range []*semContender{a, b, c, d} {
			require.Zero(w, clientWatches(x.conn))
		}
	})
}

func TestSemaphoreInCompanyLayout(t *testing.T) {
	t.Run("Curator", func(t *testing.T) {
		runSemaphoreTest(t, func(w *semHarness) {
			a := w.acquire(companies["Curator"](w, w.connect(), 1), 1)
			b := w.acquire(companies["Curator"](w, w.connect(), 1), 1)
			require.Regexp(t, `^/
  app
    sem container
      leases container
        _c_[-0-9a-f]{36}-lease-000000000[01] ephemeral=0x\w+
        _c_[-0-9a-f]{36}-lease-000000000[01] ephemeral=0x\w+
      locks container
        _c_[-0-9a-f]{36}-lock-0000000001 ephemeral=0x\w+
$`, w.srv.Tree(), "whoever waits has the mutex")
			a.release()
			b.release()
		})
	})
	t.Run("kazoo", func(t *testing.T) {
		runSemaphoreTest(t, func(w *semHarness) {
			a := w.acquire(companies["kazoo"](w, w.connect(), 1), 1)
			b := w.acquire(companies["kazoo"](w, w.connect(), 7), 1)
			require.Regexp(t, `^/
  app
    sem "1"
      [0-9a-f]{32} ephemeral=0x\w+
      [0-9a-f]{32} ephemeral=0x\w+
    sem-__lock__
      [0-9a-f]{32}__lock__0000000001 ephemeral=0x\w+
$`, w.srv.Tree(), "what is stored wins")
			limit, err := w.semaphore(w.operator, 7, recipes.WithLayout(recipes.Kazoo)).Limit(w.Context())
			require.NoError(w, err)
			require.Equal(w, 1, limit)
			a.release()
			b.release()
		})
	})
}

// What another program has put below the leases counts, as it does for others.
func TestSemaphoreInCompanyOfOthers(t *testing.T) {
	for name, dir := range map[string]string{"Curator": semPath + "/leases", "kazoo": semPath} {
		t.Run(name, func(t *testing.T) {
			runSemaphoreTest(t, func(w *semHarness) {
				make := companies[name]
				first := w.acquire(make(w, w.connect(), 2), 1)
				other, err := w.operator.Create(dir+"/597de0d1c10b4e1ea9f73a88a1fa7c26", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
				require.NoError(w, err)
				next := w.acquire(make(w, w.connect(), 2), 1)
				next.waits()
				_, err = make(w, w.operator, 2).TryAcquire(w.Context(), 1)
				require.ErrorIs(w, err, ErrHeld)
				w.remove(other)
				next.holds()
				first.release()
				next.release()
				w.clean()
			})
		})
	}
}

// Whoever gives up gives up the mutex and its leases.
func TestSemaphoreInCompanyGivingUp(t *testing.T) {
	eachCompany(t, func(w *semHarness, contend func(limit, n int) *semContender) {
		holder := contend(2, 2)
		first, second, third := contend(2, 2), contend(2, 1), contend(2, 1)
		second.cancel()
		synctest.Wait()
		first.cancel()
		synctest.Wait()
		third.waits()
		require.Len(w, w.leases(), 4, "two leases, and the third with the mutex and a lease")
		holder.release()
		third.release()
		w.clean()
	})
}

// The mutex is taken away from who waits for leases: to stay would mean that two
// count each other and wait for ever.
func TestSemaphoreInCompanyMutexLost(t *testing.T) {
	eachCompany(t, func(w *semHarness, contend func(limit, n int) *semContender) {
		holder := contend(1, 1)
		waiter, next := contend(1, 1), contend(1, 1)
		for _, s := range w.srv.Sessions() {
			if s.ID == waiter.session() {
				require.Len(w, s.Ephemerals, 2)
				w.remove(s.Ephemerals[0])
			}
		}
		w.pass(100 * time.Millisecond)
		waiter.fails(recipes.ErrDeleted)
		next.waits()
		holder.release()
		next.release()
		w.clean()
	})
}

// One of several leases is taken away: that is the end of the grant.
func TestSemaphoreInCompanyOneOfSeveralLost(t *testing.T) {
	eachCompany(t, func(w *semHarness, contend func(limit, n int) *semContender) {
		c := contend(3, 3)
		h := c.holds()
		require.Len(w, w.leases(), 3)
		w.remove(w.leases()[1])
		w.pass(time.Second)
		require.ErrorIs(w, h.Err(), recipes.ErrDeleted)
		require.NoError(w, h.Release(w.Context()))
		w.clean()
	})
}

// Every answer on the way to a lease, and back, gets lost once.
func TestSemaphoreInCompanyAnswersLost(t *testing.T) {
	for name, make := range companies {
		for _, op := range []zktest.Op{zktest.OpCreate, zktest.OpGetChildren2, zktest.OpDelete, zktest.OpGetData} {
			for nth := 1; nth <= 2; nth++ {
				t.Run(name+" "+op.String(), func(t *testing.T) {
					eachLoss(t, func(w *semHarness, l loss) {
						w.acquire(make(w, w.connect(), 1), 1).release()
						conn := w.connect()
						session := conn.SessionID()
						l.set(w.srv, zktest.Match{Op: op, Session: session, Nth: nth})
						c := w.acquire(make(w, conn, 1), 1)
						w.pass(4 * time.Second)
						next := w.acquire(make(w, w.connect(), 1), 1)
						next.waits()
						require.NoError(w, c.holds().Release(w.Context()))
						w.pass(2 * time.Second)
						next.holds()
						require.Equal(w, session, conn.SessionID())
						next.release()
						w.clean()
					})
				})
			}
		}
	}
}

// The end comes while a lease is being created: nothing is left of it.
func TestTrap40_SemaphoreInCompanyEndDuringTheCreate(t *testing.T) {
	for name, make := range companies {
		t.Run(name, func(t *testing.T) {
			eachLoss(t, func(w *semHarness, l loss) {
				w.acquire(make(w, w.connect(), 1), 1).release()
				conn := w.connect()
				ctx, cancel := context.WithCancel(w.Context())
				match := zktest.Match{Op: zktest.OpCreate, Session: conn.SessionID(), Nth: 2}
				lost := l.set(w.srv, match)
				canceled := w.srv.Before(match, func(q *zktest.Request) zktest.Verdict {
					cancel()
					return zktest.Pass(q)
				})
				_, err := make(w, conn, 1).Acquire(ctx, 1)
				require.ErrorIs(w, err, context.Canceled)
				w.pass(2 * timeout)
				w.ran(lost, canceled)
				w.clean()
			})
		})
	}
}

// A lease whose create seemed not to have been carried out appears after all.
func TestTrap03_SemaphoreInCompanyLeaseShowsUpLate(t *testing.T) {
	for name, make := range companies {
		t.Run(name, func(t *testing.T) {
			runSemaphoreTest(t, func(w *semHarness) {
				holder := w.acquire(make(w, w.connect(), 2), 2)
				conn := w.connect()
				lost := w.srv.Before(zktest.Match{Op: zktest.OpCreate, Session: conn.SessionID(), Nth: 2}, zktest.Cut)
				c := w.acquire(make(w, conn, 2), 2)
				w.pass(2 * time.Second)
				w.ran(lost)
				c.waits()
				late := w.srv.Log().Filter(func(e zktest.Entry) bool { return e.Fate == zktest.CutBefore })[0].Path
				flags := int32(zk.FlagEphemeral)
				if name == "Curator" {
					flags |= zk.FlagSequence
				}
				_, err := conn.Create(late, nil, flags, zk.WorldACL(zk.PermAll))
				require.NoError(w, err)
				holder.release()
				w.pass(time.Second)
				c.holds()
				require.Len(w, w.leases(), 2)
				c.release()
				w.clean()
			})
		})
	}
}

// A holder out of reach is told before others can have its lease.
func TestSemaphoreInCompanyHolderIsTold(t *testing.T) {
	eachCompany(t, func(w *semHarness, contend func(limit, n int) *semContender) {
		holder := contend(2, 2)
		h := holder.holds()
		next := contend(2, 1)
		w.srv.Blackhole(zktest.BothWays, holder.session())
		<-h.Done()
		synctest.Wait()
		next.waits()
		w.pass(2 * timeout)
		next.holds()
		require.ErrorIs(w, h.Err(), recipes.ErrLeaseExpired)
		w.srv.Heal()
		w.pass(timeout)
		next.release()
		w.clean()
	})
}

// kazoo's nodes and the limit in their data may be there before.
func TestSemaphoreInCompanyOfKazooLimit(t *testing.T) {
	for data, limit := range map[string]int{"2": 2, " 2\n": 2, "": 1, "no number": 1, "0": 0} {
		runSemaphoreTest(t, func(w *semHarness) {
			_, err := w.operator.Create(semPath, []byte(data), 0, zk.WorldACL(zk.PermAll))
			require.NoError(w, err)
			var all []*semContender
			for range limit {
				all = append(all, w.acquire(companies["kazoo"](w, w.connect(), 1), 1))
			}
			w.holding(all...)
			next := w.acquire(companies["kazoo"](w, w.connect(), 1), 1)
			if limit == 0 {
				next.fails(ErrOverLimit)
				return
			}
			next.waits()
		})
	}
}

// The mutex of others is respected.
func TestSemaphoreInCompanyTryWhileTheMutexIsHeld(t *testing.T) {
	runSemaphoreTest(t, func(w *semHarness) {
		w.acquire(companies["kazoo"](w, w.connect(), 2), 1).release()
		conn := w.connect()
		m, err := NewMutex(conn, semPath+"-__lock__", semOptions([]recipes.Option{recipes.WithLayout(recipes.Kazoo)})...)
		require.NoError(w, err)
		h, err := m.Lock(w.Context())
		require.NoError(w, err)
		s := companies["kazoo"](w, w.connect(), 2)
		_, err = s.TryAcquire(w.Context(), 1)
		require.ErrorIs(w, err, ErrHeld)
		c := w.acquire(s, 1)
		c.waits()
		require.NoError(w, h.Release(w.Context()))
		synctest.Wait()
		c.release()
		w.clean()
	})
}

// The session ends between the mutex and the lease, and the mutex's place cannot be
// left at once: a lease that is created in the next session was not taken under the
// mutex. kazoo, which counts before it creates, does not see it.
func TestTrap11_SemaphoreInCompanyLeaseOfAnotherSession(t *testing.T) {
	runSemaphoreTest(t, func(w *semHarness) {
		w.acquire(companies["kazoo"](w, w.connect(), 1), 1).release()
		mutex := semPath + "-__lock__"
		conn := w.connect()
		// An earlier create has gone without an answer, so there is something to
		// search for.
		first := w.srv.Before(zktest.Match{Op: zktest.OpCreate, Session: conn.SessionID(), Nth: 1}, zktest.Fail(zk.ErrSessionMoved))
		second := w.srv.Before(zktest.Match{Op: zktest.OpCreate, Session: conn.SessionID(), Path: semBelow, Nth: 1}, zktest.Cut)
		s := companies["kazoo"](w, conn, 1)
		before := conn.SessionID()
		c := w.startAcquire(s, 1)
		<-second.Ran()
		require.NoError(w, w.srv.ExpireSession(before))
		w.srv.Before(zktest.Match{Op: zktest.OpSync, Path: mutex}, zktest.Fail(zk.ErrSessionMoved))
		// kazoo takes the mutex and counts before the client is back.
		other, err := w.operator.Create(mutex+"/597de0d1c10b4e1ea9f73a88a1fa7c26__lock__", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
		require.NoError(w, err)
		children, _, err := w.operator.Children(mutex)
		require.NoError(w, err)
		require.Len(w, children, 1)
		leases, _, err := w.operator.Children(semPath)
		require.NoError(w, err)
		require.Empty(w, leases)
		w.pass(2*time.Second + 200*time.Millisecond) // the client pauses twice before it is back
		require.NotZero(w, conn.SessionID())
		require.NotEqual(w, before, conn.SessionID())
		_, err = w.operator.Create(semPath+"/597de0d1c10b4e1ea9f73a88a1fa7c26", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		require.NoError(w, err)
		require.NoError(w, w.operator.Delete(other, -1))
		w.ran(first, second)
		if over, h, _ := c.result(); over && h != nil {
			require.Error(w, h.Err(), "two leases, and the limit is 1\n%s", w.srv.Tree())
		}
		w.pass(10 * timeout)
		c.fails(recipes.ErrSessionExpired)
	})
}

// A transaction of a holder of several leases meets the end of one of them, of which
// the holder has not heard.
func TestTrap16_SemaphoreInCompanyTransactionAfterOneOfSeveralIsLost(t *testing.T) {
	eachCompany(t, func(w *semHarness, contend func(limit, n int) *semContender) {
		c := contend(2, 2)
		h := c.holds()
		leases := w.leases()
		require.Len(w, leases, 2)
		other := leases[0]
		if other == h.Path() {
			other = leases[1]
		}
		hook := w.srv.Before(zktest.Match{Op: zktest.OpMulti, Path: "/app", Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			require.NoError(w, w.operator.Delete(other, -1))
			return zktest.Pass(q)
		})
		_, err := h.Multi(&zk.SetDataRequest{Path: "/app", Version: -1})
		require.ErrorIs(w, err, ErrNotHeld)
		w.ran(hook)
		require.NoError(w, h.Release(w.Context()))
		w.clean()
	})
}
