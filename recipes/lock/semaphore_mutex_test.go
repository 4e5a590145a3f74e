package lock

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// otherProtocols contains the options for the protocols of other libraries.
var otherProtocols = map[string]Option{"Curator": WithCuratorLayout(), "kazoo": recipes.WithKazooLayout()}

func eachProtocol(t *testing.T, f func(w *harness, contend func(limit, n int) *call)) {
	for name, protocol := range otherProtocols {
		t.Run(name, func(t *testing.T) {
			runSemaphoreTest(t, func(w *harness) {
				f(w, func(limit, n int) *call { return w.acquire(w.semaphore(w.connect(), limit, protocol), n) })
			})
		})
	}
}

func TestSemaphoreMutex(t *testing.T) {
	eachProtocol(t, func(w *harness, contend func(limit, n int) *call) {
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
		for _, x := range []*call{a, b, c, d} {
			require.Zero(w, bubble.Watches(x.conn))
		}
	})
}

// A number of leases that is rejected costs no memory.
func TestSemaphoreMutex_FarOverLimit(t *testing.T) {
	eachProtocol(t, func(w *harness, contend func(limit, n int) *call) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		const n = 4_000_000
		contend(3, n).fails(ErrOverLimit)
		runtime.ReadMemStats(&after)
		require.Less(w, after.TotalAlloc-before.TotalAlloc, uint64(8*n))
		w.clean()
	})
}

func TestSemaphoreMutex_Znodes(t *testing.T) {
	t.Run("Curator", func(t *testing.T) {
		runSemaphoreTest(t, func(w *harness) {
			a := w.acquire(w.semaphore(w.connect(), 1, otherProtocols["Curator"]), 1)
			b := w.acquire(w.semaphore(w.connect(), 1, otherProtocols["Curator"]), 1)
			require.Regexp(t, `^/
  app
    sem container
      leases container
        _c_[-0-9a-f]{36}-lease-000000000[01] ephemeral=0x\w+
        _c_[-0-9a-f]{36}-lease-000000000[01] ephemeral=0x\w+
      locks container
        _c_[-0-9a-f]{36}-lock-0000000001 ephemeral=0x\w+
$`, w.srv.Tree(), "the waiting contender holds the mutex")
			a.release()
			b.release()
		})
	})
	t.Run("kazoo", func(t *testing.T) {
		runSemaphoreTest(t, func(w *harness) {
			a := w.acquire(w.semaphore(w.connect(), 1, otherProtocols["kazoo"]), 1)
			b := w.acquire(w.semaphore(w.connect(), 7, otherProtocols["kazoo"]), 1)
			require.Regexp(t, `^/
  app
    sem "1"
      [0-9a-f]{32} ephemeral=0x\w+
      [0-9a-f]{32} ephemeral=0x\w+
    sem-__lock__
      [0-9a-f]{32}__lock__0000000001 ephemeral=0x\w+
$`, w.srv.Tree(), "the stored limit has precedence")
			limit, err := w.semaphore(w.operator, 7, recipes.WithKazooLayout()).Limit(w.Context())
			require.NoError(w, err)
			require.Equal(w, 1, limit)
			a.release()
			b.release()
		})
	})
}

// Other children of the leases' znode count as leases, as in Curator and kazoo.
func TestSemaphoreMutex_OtherChildrenCount(t *testing.T) {
	for name, dir := range map[string]string{"Curator": semPath + "/leases", "kazoo": semPath} {
		t.Run(name, func(t *testing.T) {
			runSemaphoreTest(t, func(w *harness) {
				protocol := otherProtocols[name]
				first := w.acquire(w.semaphore(w.connect(), 2, protocol), 1)
				other, err := w.operator.Create(dir+"/597de0d1c10b4e1ea9f73a88a1fa7c26", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
				require.NoError(w, err)
				next := w.acquire(w.semaphore(w.connect(), 2, protocol), 1)
				next.waits()
				_, err = w.semaphore(w.operator, 2, protocol).TryAcquire(w.Context(), 1)
				require.ErrorIs(w, err, ErrHeld)
				w.removeAndWait(other)
				next.holds()
				first.release()
				next.release()
				w.clean()
			})
		})
	}
}

// A contender that gives up releases the mutex and its leases.
func TestSemaphoreMutex_WaiterGivesUp(t *testing.T) {
	eachProtocol(t, func(w *harness, contend func(limit, n int) *call) {
		holder := contend(2, 2)
		first, second, third := contend(2, 2), contend(2, 1), contend(2, 1)
		second.cancel()
		synctest.Wait()
		first.cancel()
		synctest.Wait()
		third.waits()
		require.Len(w, w.leases(), 4, "two leases, and the mutex and a lease of the third contender")
		holder.release()
		third.release()
		w.clean()
	})
}

// A contender that waits for leases loses the mutex. It must leave: otherwise two contenders would
// count each other's leases and wait forever.
func TestSemaphoreMutex_MutexIsLost(t *testing.T) {
	eachProtocol(t, func(w *harness, contend func(limit, n int) *call) {
		holder := contend(1, 1)
		waiter, next := contend(1, 1), contend(1, 1)
		for _, s := range w.srv.Sessions() {
			if s.ID == waiter.session() {
				require.Len(w, s.Ephemerals, 2)
				w.removeAndWait(s.Ephemerals[0])
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

// If one of several leases is deleted, the hold ends.
func TestSemaphoreMutex_OneOfSeveralLeasesIsLost(t *testing.T) {
	eachProtocol(t, func(w *harness, contend func(limit, n int) *call) {
		c := contend(3, 3)
		h := c.holds()
		require.Len(w, w.leases(), 3)
		w.removeAndWait(w.leases()[1])
		w.pass(time.Second)
		require.ErrorIs(w, h.Err(), recipes.ErrDeleted)
		require.NoError(w, h.Release())
		w.clean()
	})
}

// Each reply during an acquisition and a release is lost once.
func TestSemaphoreMutex_RepliesLost(t *testing.T) {
	for name, protocol := range otherProtocols {
		for _, op := range []zktest.Op{zktest.OpCreate, zktest.OpGetChildren2, zktest.OpDelete, zktest.OpGetData} {
			for nth := 1; nth <= 2; nth++ {
				t.Run(name+" "+op.String(), func(t *testing.T) {
					forEachSemaphoreLoss(t, func(w *harness, l bubble.Fault) {
						w.acquire(w.semaphore(w.connect(), 1, protocol), 1).release()
						conn := w.connect()
						session := conn.SessionID()
						l.Set(w.srv, zktest.Match{Op: op, Session: session, Nth: nth})
						c := w.acquire(w.semaphore(conn, 1, protocol), 1)
						w.pass(4 * time.Second)
						next := w.acquire(w.semaphore(w.connect(), 1, protocol), 1)
						next.waits()
						require.NoError(w, c.holds().Release())
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

// If the acquisition is cancelled while a lease is being created, no znode is left.
func TestTrap40_SemaphoreMutexCancelledDuringCreate(t *testing.T) {
	for name, protocol := range otherProtocols {
		t.Run(name, func(t *testing.T) {
			forEachSemaphoreLoss(t, func(w *harness, l bubble.Fault) {
				w.acquire(w.semaphore(w.connect(), 1, protocol), 1).release()
				conn := w.connect()
				ctx, cancel := context.WithCancel(w.Context())
				match := zktest.Match{Op: zktest.OpCreate, Session: conn.SessionID(), Nth: 2}
				lost := l.Set(w.srv, match)
				canceled := w.srv.Before(match, func(q *zktest.Request) zktest.Verdict {
					cancel()
					return zktest.Pass(q)
				})
				_, err := w.semaphore(conn, 1, protocol).Acquire(ctx, 1)
				require.ErrorIs(w, err, context.Canceled)
				w.pass(2 * timeout)
				w.ran(lost, canceled)
				w.clean()
			})
		})
	}
}

// A lease appears late, after its create seemed not to have been applied.
func TestTrap03_SemaphoreMutexLeaseAppearsLate(t *testing.T) {
	for name, protocol := range otherProtocols {
		t.Run(name, func(t *testing.T) {
			runSemaphoreTest(t, func(w *harness) {
				holder := w.acquire(w.semaphore(w.connect(), 2, protocol), 2)
				conn := w.connect()
				lost := w.srv.Before(zktest.Match{Op: zktest.OpCreate, Session: conn.SessionID(), Nth: 2}, zktest.Cut)
				c := w.acquire(w.semaphore(conn, 2, protocol), 2)
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

// The hold of a client that is cut off ends before another client can acquire the lease.
func TestSemaphoreMutex_HolderIsCutOff(t *testing.T) {
	eachProtocol(t, func(w *harness, contend func(limit, n int) *call) {
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

// The znodes of kazoo, and the limit in their data, may exist before.
func TestSemaphoreMutex_KazooLimit(t *testing.T) {
	for data, limit := range map[string]int{"2": 2, " 2\n": 2, "": 1, "no number": 1, "0": 0} {
		runSemaphoreTest(t, func(w *harness) {
			_, err := w.operator.Create(semPath, []byte(data), 0, zk.WorldACL(zk.PermAll))
			require.NoError(w, err)
			var all []*call
			for range limit {
				all = append(all, w.acquire(w.semaphore(w.connect(), 1, otherProtocols["kazoo"]), 1))
			}
			w.holding(all...)
			next := w.acquire(w.semaphore(w.connect(), 1, otherProtocols["kazoo"]), 1)
			if limit == 0 {
				next.fails(ErrOverLimit)
				return
			}
			next.waits()
		})
	}
}

// TryAcquire returns ErrHeld while another client holds the mutex.
func TestSemaphoreMutex_TryAcquireWhileMutexIsHeld(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		w.acquire(w.semaphore(w.connect(), 2, otherProtocols["kazoo"]), 1).release()
		conn := w.connect()
		m, err := NewMutex(conn, semPath+"-__lock__", semOptions([]Option{recipes.WithKazooLayout()})...)
		require.NoError(w, err)
		h, err := m.Lock(w.Context())
		require.NoError(w, err)
		s := w.semaphore(w.connect(), 2, otherProtocols["kazoo"])
		_, err = s.TryAcquire(w.Context(), 1)
		require.ErrorIs(w, err, ErrHeld)
		c := w.acquire(s, 1)
		c.waits()
		require.NoError(w, h.Release())
		synctest.Wait()
		c.release()
		w.clean()
	})
}

// The session expires after the mutex was acquired and before the lease is created,
// and the removal of the mutex's znode takes time. A lease that is created in the
// next session is not protected by the mutex: kazoo, which counts before it creates
// a lease, does not see it.
func TestTrap11_SemaphoreMutexLeaseOfOtherSession(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		w.acquire(w.semaphore(w.connect(), 1, otherProtocols["kazoo"]), 1).release()
		mutex := semPath + "-__lock__"
		conn := w.connect()
		// The reply to an earlier create was lost, so the contender must search for its znode.
		first := w.srv.Before(zktest.Match{Op: zktest.OpCreate, Session: conn.SessionID(), Nth: 1}, zktest.Fail(zk.ErrSessionMoved))
		second := w.srv.Before(zktest.Match{Op: zktest.OpCreate, Session: conn.SessionID(), Path: semBelow, Nth: 1}, zktest.Cut)
		s := w.semaphore(conn, 1, otherProtocols["kazoo"])
		before := conn.SessionID()
		c := w.startAcquire(s, 1)
		<-second.Ran()
		require.NoError(w, w.srv.ExpireSession(before))
		w.srv.Before(zktest.Match{Op: zktest.OpSync, Path: mutex}, zktest.Fail(zk.ErrSessionMoved))
		// kazoo acquires the mutex and counts the leases before the client has reconnected.
		other, err := w.operator.Create(mutex+"/597de0d1c10b4e1ea9f73a88a1fa7c26__lock__", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
		require.NoError(w, err)
		children, _, err := w.operator.Children(mutex)
		require.NoError(w, err)
		require.Len(w, children, 1)
		leases, _, err := w.operator.Children(semPath)
		require.NoError(w, err)
		require.Empty(w, leases)
		w.pass(2*time.Second + 200*time.Millisecond) // the client library pauses twice before it connects
		require.NotZero(w, conn.SessionID())
		require.NotEqual(w, before, conn.SessionID())
		lease, err := w.operator.Create(semPath+"/597de0d1c10b4e1ea9f73a88a1fa7c26", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		require.NoError(w, err)
		require.NoError(w, w.operator.Delete(other, -1))
		w.ran(first, second)
		if over, h, _ := c.result(); over && h != nil {
			require.Error(w, h.Err(), "two leases, and the limit is 1\n%s", w.srv.Tree())
		}
		w.pass(10 * timeout)
		c.waits() // in the next session
		w.removeAndWait(lease)
		c.holds()
	})
}

// One of several leases is deleted, and the holder executes a transaction before it has noticed
// that.
func TestTrap16_SemaphoreMutexTransactionAfterLeaseIsLost(t *testing.T) {
	eachProtocol(t, func(w *harness, contend func(limit, n int) *call) {
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
		require.ErrorIs(w, err, recipes.ErrNotHeld)
		w.ran(hook)
		require.NoError(w, h.Release())
		w.clean()
	})
}
