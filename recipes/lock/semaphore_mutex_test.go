package lock

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// otherLayouts maps the names of the other libraries to the options for their protocols.
var otherLayouts = map[string]Option{"Curator": WithCuratorLayout(), "kazoo": recipes.WithKazooLayout()}

// eachLayout runs f with the protocol of each other library. contend contends for n leases on a new connection.
func eachLayout(t *testing.T, f func(w *harness, layout Option, contend func(limit, n int) *call)) {
	for name, layout := range otherLayouts {
		t.Run(name, func(t *testing.T) {
			runTest(t, 1, func(w *harness) {
				f(w, layout, func(limit, n int) *call { return w.acquire(w.semaphore(w.connect(), limit, layout), n) })
			})
		})
	}
}

// TestSemaphoreMutex_GrantsUpToLimitInOrder checks that a semaphore with the protocol of Curator or kazoo
// grants no more leases than its limit, and grants them in the order of arrival.
func TestSemaphoreMutex_GrantsUpToLimitInOrder(t *testing.T) {
	eachLayout(t, func(w *harness, _ Option, contend func(limit, n int) *call) {
		a, b := contend(3, 1), contend(3, 2)
		w.requireHolding(a, b)
		require.Len(w, w.contenders(), 3)
		c, d := contend(3, 2), contend(3, 1)
		w.requireWaiting(c, d)
		a.release()
		w.requireWaiting(c, d)
		b.release()
		w.requireHolding(c, d)
		require.Greater(w, d.requireHolds().Token(), c.requireHolds().Token())
		_, err := c.requireHolds().Multi()
		require.NoError(w, err)
		contend(3, 4).requireFails(ErrOverLimit)
		c.release()
		d.release()
		w.requireContenders()
		for _, x := range []*call{a, b, c, d} {
			require.Zero(w, bubble.Watches(x.conn))
		}
	})
}

// TestSemaphoreMutex_RejectedRequestAllocatesNoLeases checks that a request for more leases than the limit is
// rejected before memory for its leases is allocated.
func TestSemaphoreMutex_RejectedRequestAllocatesNoLeases(t *testing.T) {
	eachLayout(t, func(w *harness, _ Option, contend func(limit, n int) *call) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		const n = 4_000_000
		contend(3, n).requireFails(ErrOverLimit)
		runtime.ReadMemStats(&after)
		require.Less(w, after.TotalAlloc-before.TotalAlloc, uint64(8*n))
	})
}

// TestSemaphoreMutex_CreatesZnodesOfOtherLibrary checks that the paths, names and types of all znodes are those
// of Curator or kazoo.
func TestSemaphoreMutex_CreatesZnodesOfOtherLibrary(t *testing.T) {
	for name, tree := range map[string]string{
		"Curator": `^/
  locks container
    one container
      leases container
        _c_[-0-9a-f]{36}-lease-000000000[01] "\S+" ephemeral=0x\w+
        _c_[-0-9a-f]{36}-lease-000000000[01] "\S+" ephemeral=0x\w+
      locks container
        _c_[-0-9a-f]{36}-lock-0000000001 "\S+" ephemeral=0x\w+
$`,
		"kazoo": `^/
  locks( container)?
    one "1"
      [0-9a-f]{32} "\S+" ephemeral=0x\w+
      [0-9a-f]{32} "\S+" ephemeral=0x\w+
    one-__lock__
      [0-9a-f]{32}__lock__0000000001 "\S+" ephemeral=0x\w+
$`,
	} {
		t.Run(name, func(t *testing.T) {
			runTest(t, 1, func(w *harness) {
				layout := otherLayouts[name]
				w.acquire(w.semaphore(w.connect(), 1, layout), 1).requireHolds()
				limit := 1
				if name == "kazoo" {
					limit = 7 // the stored limit takes precedence over the limit of the constructor
				}
				w.acquire(w.semaphore(w.connect(), limit, layout), 1).requireWaits()
				require.Regexp(t, tree, w.srv.Tree(), "the waiting contender holds the mutex")
				limit, err := w.semaphore(w.operator, limit, layout).Limit(w.Context())
				require.NoError(w, err)
				require.Equal(w, 1, limit)
			})
		})
	}
}

// TestSemaphoreMutex_CountsOtherChildrenAsLeases checks that children with other names in the directory of the
// leases count as leases, as in Curator and kazoo.
func TestSemaphoreMutex_CountsOtherChildrenAsLeases(t *testing.T) {
	for name, dir := range map[string]string{"Curator": node + "/leases", "kazoo": node} {
		t.Run(name, func(t *testing.T) {
			runTest(t, 1, func(w *harness) {
				layout := otherLayouts[name]
				w.acquire(w.semaphore(w.connect(), 2, layout), 1).requireHolds()
				other := w.createEphemeral(dir+"/597de0d1c10b4e1ea9f73a88a1fa7c26", 0)
				next := w.acquire(w.semaphore(w.connect(), 2, layout), 1)
				next.requireWaits()
				_, err := w.semaphore(w.operator, 2, layout).TryAcquire(w.Context(), 1)
				require.ErrorIs(w, err, ErrHeld)
				w.removeAndWait(other)
				next.requireHolds()
			})
		})
	}
}

// TestSemaphoreMutex_CancelledWaiterReleasesMutex checks that a contender that gives up releases the mutex and
// the leases that it has already acquired.
func TestSemaphoreMutex_CancelledWaiterReleasesMutex(t *testing.T) {
	eachLayout(t, func(w *harness, _ Option, contend func(limit, n int) *call) {
		holder := contend(2, 2)
		first, second, third := contend(2, 2), contend(2, 1), contend(2, 1)
		second.cancel()
		w.passTime(0)
		first.cancel()
		w.passTime(0)
		third.requireWaits()
		require.Len(w, w.contenders(), 4, "two leases, and the mutex and a lease of the third contender")
		holder.release()
		third.requireHolds()
	})
}

// TestSemaphoreMutex_WaiterFailsIfMutexIsLost checks that a contender that waits for leases leaves if it loses
// the mutex. Otherwise two contenders would count each other's leases and wait forever.
func TestSemaphoreMutex_WaiterFailsIfMutexIsLost(t *testing.T) {
	eachLayout(t, func(w *harness, _ Option, contend func(limit, n int) *call) {
		holder := contend(1, 1)
		waiter, next := contend(1, 1), contend(1, 1)
		for _, s := range w.srv.Sessions() {
			if s.ID == waiter.session() {
				require.Len(w, s.Ephemerals, 2)
				w.removeAndWait(s.Ephemerals[0])
			}
		}
		w.passTime(100 * time.Millisecond)
		waiter.requireFails(recipes.ErrDeleted)
		next.requireWaits()
		holder.release()
		next.requireHolds()
	})
}

// TestSemaphoreMutex_SucceedsIfReplyIsLost checks that an acquisition and its release succeed if one reply is
// lost.
func TestSemaphoreMutex_SucceedsIfReplyIsLost(t *testing.T) {
	for name, layout := range otherLayouts {
		for _, op := range []zktest.Op{zktest.OpCreate, zktest.OpGetChildren2, zktest.OpDelete, zktest.OpGetData} {
			for nth := 1; nth <= 2; nth++ {
				t.Run(name+" "+op.String(), func(t *testing.T) {
					forEachLoss(t, briefLosses, 1, func(w *harness, l bubble.Fault) {
						w.acquire(w.semaphore(w.connect(), 1, layout), 1).release()
						conn := w.connect()
						session := conn.SessionID()
						l.Set(w.srv, zktest.Match{Op: op, Session: session, Nth: nth})
						c := w.acquire(w.semaphore(conn, 1, layout), 1)
						w.passTime(4 * time.Second)
						next := w.acquire(w.semaphore(w.connect(), 1, layout), 1)
						next.requireWaits()
						require.NoError(w, c.requireHolds().Release())
						w.passTime(2 * time.Second)
						next.requireHolds()
						require.Equal(w, session, conn.SessionID())
					})
				})
			}
		}
	}
}

// TestSemaphoreMutex_CancelledCreateLeavesNoZnode checks that no znode remains if an acquisition is cancelled
// while it creates a lease.
// Scenario 40 of docs/traps.md.
func TestSemaphoreMutex_CancelledCreateLeavesNoZnode(t *testing.T) {
	for name, layout := range otherLayouts {
		t.Run(name, func(t *testing.T) {
			forEachLoss(t, briefLosses, 1, func(w *harness, l bubble.Fault) {
				w.acquire(w.semaphore(w.connect(), 1, layout), 1).release()
				conn := w.connect()
				ctx, cancel := context.WithCancel(w.Context())
				match := zktest.Match{Op: zktest.OpCreate, Session: conn.SessionID(), Nth: 2}
				lost := l.Set(w.srv, match)
				canceled := w.srv.Before(match, func(q *zktest.Request) zktest.Verdict {
					cancel()
					return zktest.Pass(q)
				})
				_, err := w.semaphore(conn, 1, layout).Acquire(ctx, 1)
				require.ErrorIs(w, err, context.Canceled)
				w.passTime(2 * timeout)
				w.requireCalled(lost, canceled)
			})
		})
	}
}

// TestSemaphoreMutex_RemovesOwnLateLease checks that a contender whose first create of a lease is applied late
// removes this lease, and does not count it as a lease of another client.
// Scenario 3 of docs/traps.md.
func TestSemaphoreMutex_RemovesOwnLateLease(t *testing.T) {
	for name, layout := range otherLayouts {
		t.Run(name, func(t *testing.T) {
			runTest(t, 1, func(w *harness) {
				holder := w.acquire(w.semaphore(w.connect(), 2, layout), 2)
				conn := w.connect()
				lost := w.srv.Before(zktest.Match{Op: zktest.OpCreate, Session: conn.SessionID(), Nth: 2}, zktest.Cut)
				c := w.acquire(w.semaphore(conn, 2, layout), 2)
				w.passTime(2 * time.Second)
				w.requireCalled(lost)
				c.requireWaits()
				late := w.srv.Log().Filter(func(e zktest.Entry) bool { return e.Fate == zktest.CutBefore })[0].Path
				flags := int32(zk.FlagEphemeral)
				if name == "Curator" {
					flags |= zk.FlagSequence
				}
				_, err := conn.Create(late, nil, flags, zk.WorldACL(zk.PermAll))
				require.NoError(w, err)
				holder.release()
				w.passTime(time.Second)
				c.requireHolds()
				require.Len(w, w.contenders(), 2)
			})
		})
	}
}

// TestSemaphoreMutex_HoldEndsBeforeLeaseIsFree checks that the hold of a client that is cut off from the
// servers ends before another client can acquire the lease.
func TestSemaphoreMutex_HoldEndsBeforeLeaseIsFree(t *testing.T) {
	eachLayout(t, func(w *harness, _ Option, contend func(limit, n int) *call) {
		holder := contend(2, 2)
		h := holder.requireHolds()
		next := contend(2, 1)
		w.srv.Blackhole(zktest.BothWays, holder.session())
		<-h.Done()
		w.passTime(0)
		next.requireWaits()
		w.passTime(2 * timeout)
		next.requireHolds()
		require.ErrorIs(w, h.Err(), recipes.ErrLeaseExpired)
		w.srv.Heal()
	})
}

// TestSemaphoreMutex_UsesLimitStoredByKazoo checks that a semaphore with kazoo's protocol uses the limit that
// kazoo has stored in the data of the znode, and ignores data that is not a number.
func TestSemaphoreMutex_UsesLimitStoredByKazoo(t *testing.T) {
	for data, limit := range map[string]int{"2": 2, " 2\n": 2, "": 1, "no number": 1, "0": 0} {
		runTest(t, 1, func(w *harness) {
			w.createLockNode()
			w.set(node, data)
			var all []*call
			for range limit {
				all = append(all, w.acquire(w.semaphore(w.connect(), 1, otherLayouts["kazoo"]), 1))
			}
			w.requireHolding(all...)
			next := w.acquire(w.semaphore(w.connect(), 1, otherLayouts["kazoo"]), 1)
			if limit == 0 {
				next.requireFails(ErrOverLimit)
				return
			}
			next.requireWaits()
		})
	}
}

// TestSemaphoreMutex_TryAcquireFailsIfMutexIsHeld checks that TryAcquire returns ErrHeld while another client
// holds the mutex of the semaphore.
func TestSemaphoreMutex_TryAcquireFailsIfMutexIsHeld(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		w.acquire(w.semaphore(w.connect(), 2, otherLayouts["kazoo"]), 1).release()
		h, err := w.mutexAt(w.operator, node+"-__lock__", recipes.WithKazooLayout()).Lock(w.Context())
		require.NoError(w, err)
		s := w.semaphore(w.connect(), 2, otherLayouts["kazoo"])
		_, err = s.TryAcquire(w.Context(), 1)
		require.ErrorIs(w, err, ErrHeld)
		c := w.acquire(s, 1)
		c.requireWaits()
		require.NoError(w, h.Release())
		w.passTime(0)
		c.requireHolds()
	})
}

// TestSemaphoreMutex_RejectsLeaseCreatedInNextSession checks that a contender is not granted a lease that it
// has created in a later session than the one in which it held the mutex. The mutex does not protect such a
// lease: kazoo counts the leases before it creates its own, and does not see this one.
// Scenario 11 of docs/traps.md.
func TestSemaphoreMutex_RejectsLeaseCreatedInNextSession(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		w.acquire(w.semaphore(w.connect(), 1, otherLayouts["kazoo"]), 1).release()
		mutex := node + "-__lock__"
		conn := w.connect()
		// The reply to an earlier create is lost, so the contender has to search for its znode.
		first := w.srv.Before(zktest.Match{Op: zktest.OpCreate, Session: conn.SessionID(), Nth: 1}, zktest.Fail(zk.ErrSessionMoved))
		second := w.srv.Before(zktest.Match{Op: zktest.OpCreate, Session: conn.SessionID(), Path: under, Nth: 1}, zktest.Cut)
		s := w.semaphore(conn, 1, otherLayouts["kazoo"])
		before := conn.SessionID()
		c := w.startCall(conn, func(ctx context.Context) (*Hold, error) { return s.Acquire(ctx, 1) })
		<-second.Ran()
		require.NoError(w, w.srv.ExpireSession(before))
		w.srv.Before(zktest.Match{Op: zktest.OpSync, Path: mutex}, zktest.Fail(zk.ErrSessionMoved))
		// kazoo acquires the mutex and counts the leases before the client has reconnected.
		other := w.createEphemeral(mutex+"/597de0d1c10b4e1ea9f73a88a1fa7c26__lock__", zk.FlagSequence)
		children, _, err := w.operator.Children(mutex)
		require.NoError(w, err)
		require.Len(w, children, 1)
		leases, _, err := w.operator.Children(node)
		require.NoError(w, err)
		require.Empty(w, leases)
		w.passTime(2*time.Second + 200*time.Millisecond) // the client library pauses twice before it connects
		require.NotZero(w, conn.SessionID())
		require.NotEqual(w, before, conn.SessionID())
		lease := w.createEphemeral(node+"/597de0d1c10b4e1ea9f73a88a1fa7c26", 0)
		w.remove(other)
		w.requireCalled(first, second)
		if c.hasReturned() && c.hold != nil {
			require.Error(w, c.hold.Err(), "two leases, and the limit is 1\n%s", w.srv.Tree())
		}
		w.passTime(10 * timeout)
		c.requireWaits() // in the next session, the contender waits for the mutex again
		w.removeAndWait(lease)
		c.requireHolds()
	})
}

// TestSemaphoreMutex_RejectsTransactionAfterLeaseIsLost checks that a transaction of a holder is not applied
// after one of its leases was deleted, although the holder has not noticed the deletion yet.
// Scenario 16 of docs/traps.md.
func TestSemaphoreMutex_RejectsTransactionAfterLeaseIsLost(t *testing.T) {
	eachLayout(t, func(w *harness, _ Option, contend func(limit, n int) *call) {
		c := contend(2, 2)
		h := c.requireHolds()
		leases := w.contenders()
		require.Len(w, leases, 2)
		other := slices.DeleteFunc(leases, func(path string) bool { return path == h.Path() })[0]
		hook := w.srv.Before(zktest.Match{Op: zktest.OpMulti, Path: "/locks", Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			w.remove(other)
			return zktest.Pass(q)
		})
		_, err := h.Multi(&zk.SetDataRequest{Path: "/locks", Version: -1})
		require.ErrorIs(w, err, recipes.ErrNotHeld)
		w.requireCalled(hook)
		w.passTime(time.Second)
		require.ErrorIs(w, h.Err(), recipes.ErrDeleted)
		require.NoError(w, h.Release())
		w.requireContenders()
	})
}
