package lock

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestLock_DeletesZnodeIfCauseIsErrorOfOtherConnection checks that Lock removes its znode if its context is
// cancelled with ErrConnClosed of another connection as the cause. Goroutines of an errgroup receive such a
// cause if the connection of one of them is closed. Lock must not conclude that its own connection is closed.
// Scenario 6 of docs/traps.md.
func TestLock_DeletesZnodeIfCauseIsErrorOfOtherConnection(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		holder := w.lock(w.connect())
		other := w.connect()
		s, err := NewSemaphore(other, "/locks/two", 1, recipes.WithSessionTimeout(timeout))
		require.NoError(w, err)
		moved := zktest.Fail(zk.ErrSessionMoved)
		set := w.srv.After(zktest.Match{Op: zktest.OpMulti, Session: other.SessionID(), Nth: 1}, moved)
		back := w.srv.Before(zktest.Match{Op: zktest.OpExists, Session: other.SessionID()}, func(q *zktest.Request) zktest.Verdict {
			if bubble.HasRun(set) {
				return moved(q)
			}
			return zktest.Pass(q)
		})
		failed := bubble.Async(func() error { return s.SetLimit(w.Context(), 2) })
		w.passTime(timeout / 4)
		w.requireCalled(set, back)
		other.Close()
		cause := <-failed
		require.ErrorIs(w, cause, recipes.ErrConnClosed)
		back.Remove()

		conn := w.connect()
		ctx, cancel := context.WithCancelCause(w.Context())
		a := bubble.Async(func() error { _, err := w.mutex(conn).Lock(ctx); return err })
		w.passTime(0)
		cancel(cause)
		require.True(w, errors.Is(<-a, cause))
		w.passTime(time.Second)
		w.requireContenders(holder.hold.Path())
		holder.release()
	})
}

// TestLock_SucceedsIfLockNodeIsRemovedBeforeCreate checks that Lock does not return an error if the servers
// remove the lock's znode, an empty container, before Lock creates the contender's znode (CURATOR-724,
// CURATOR-180, kazoo #563).
// Scenario 36 of docs/traps.md.
func TestLock_SucceedsIfLockNodeIsRemovedBeforeCreate(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		conn := w.connect()
		a := w.lock(conn)
		a.release()
		swept := 0
		w.beforeCreate(func(q *zktest.Request) zktest.Verdict {
			if swept < 3 {
				swept++
				w.srv.Sweep()
			}
			return zktest.Pass(q)
		})
		for range 4 {
			a = w.lock(conn)
			a.requireOnlyZnode()
			require.Zero(w, w.srv.Sweep(), "the container is not empty")
			a.release()
		}
		require.Equal(w, 3, swept)
		require.Contains(w, w.srv.Tree(), "one container")
	})
	t.Run("while the connection is down", func(t *testing.T) {
		runTest(t, 1, func(w *harness) {
			conn := w.connect()
			w.lock(conn).release()
			var once sync.Once
			w.beforeCreate(func(q *zktest.Request) zktest.Verdict {
				first := false
				once.Do(func() { first = true })
				if !first {
					return zktest.Pass(q)
				}
				w.srv.Refuse(true)
				return zktest.Cut(q)
			})
			a := w.lock(conn)
			require.Equal(w, 1, w.srv.Sweep())
			w.restore()
			a.requireOnlyZnode()
		})
	})
	t.Run("between two holds", func(t *testing.T) {
		runTest(t, 1, func(w *harness) {
			var last *call
			for range 3 {
				a := w.lock(w.connect())
				if last != nil {
					require.Greater(w, a.requireHolds().Token(), last.hold.Token(), "sequence numbers restart, tokens increase")
				}
				a.release()
				require.Equal(w, 1, w.srv.Sweep())
				last = a
			}
		})
	})
}

// TestTryLock_LeavesNoZnodeAfterFailure checks that TryLock and TryAcquire leave no znode when they fail,
// because such a znode would make the attempts of other clients fail (CURATOR-376).
// Scenario 45 of docs/traps.md.
func TestTryLock_LeavesNoZnodeAfterFailure(t *testing.T) {
	for base, trier := range map[string]func(w *harness, conn *zk.Conn) func(context.Context) (*Hold, error){
		"-lock-": func(w *harness, conn *zk.Conn) func(context.Context) (*Hold, error) { return w.mutex(conn).TryLock },
		"-lease-": func(w *harness, conn *zk.Conn) func(context.Context) (*Hold, error) {
			s := w.semaphore(conn, 1)
			return func(ctx context.Context) (*Hold, error) { return s.TryAcquire(ctx, 1) }
		},
	} {
		runTest(t, 1, func(w *harness) {
			w.createLockNode()
			conn := w.connect()
			try := trier(w, conn)

			// If another client holds the lock, the attempt creates no znode.
			ahead := w.createContender(base)
			_, err := try(w.Context())
			require.ErrorIs(w, err, ErrHeld)
			require.Len(w, bubble.Created(w.srv, node), 1)
			w.remove(ahead)

			// If another contender joins between the check and the create, the attempt deletes its znode
			// before it returns.
			w.srv.Before(zktest.Match{Op: zktest.OpCreate, Session: conn.SessionID(), Path: under, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
				ahead = w.createContender(base)
				return zktest.Pass(q)
			})
			_, err = try(w.Context())
			require.ErrorIs(w, err, ErrHeld)
			require.Len(w, bubble.Created(w.srv, node), 3)
			w.requireContenders(ahead)
			w.remove(ahead)
			h, err := try(w.Context())
			require.NoError(w, err)
			require.NoError(w, h.Release())
		})
	}
}

// TestLock_DeadlineLimitsWholeCall checks that the deadline of the context limits each call as a whole. In
// kazoo and in Curator's MultiLock, a timeout applies to each wait separately.
// Scenario 46 of docs/traps.md.
func TestLock_DeadlineLimitsWholeCall(t *testing.T) {
	const limit = 3 * time.Second
	const path = "/a/b/c/d"
	acquire := func(options ...Option) func(ctx context.Context, w *harness, conn *zk.Conn) error {
		return func(ctx context.Context, w *harness, conn *zk.Conn) error {
			s, err := NewSemaphore(conn, path, 1, withTimeout(options)...)
			require.NoError(w, err)
			_, err = s.Acquire(ctx, 1)
			return err
		}
	}
	for name, call := range map[string]func(ctx context.Context, w *harness, conn *zk.Conn) error{
		"Lock": func(ctx context.Context, w *harness, conn *zk.Conn) error {
			_, err := w.mutexAt(conn, path).Lock(ctx)
			return err
		},
		"TryLock": func(ctx context.Context, w *harness, conn *zk.Conn) error {
			_, err := w.mutexAt(conn, path).TryLock(ctx)
			return err
		},
		"RLock": func(ctx context.Context, w *harness, conn *zk.Conn) error {
			_, err := w.rwAt(conn, path).RLock(ctx)
			return err
		},
		"Acquire":        acquire(),
		"Acquire, kazoo": acquire(recipes.WithKazooLayout()),
		"Acquire, no answer": func(ctx context.Context, w *harness, conn *zk.Conn) error {
			w.srv.Blackhole(zktest.ToServer, conn.SessionID())
			_, err := w.semaphore(conn, 1).Acquire(ctx, 1)
			return err
		},
		"Multi": func(ctx context.Context, w *harness, conn *zk.Conn) error {
			_, err := w.multi(conn, "a", "b", "c").Lock(ctx)
			return err
		},
		"Contenders": func(ctx context.Context, w *harness, conn *zk.Conn) error {
			w.srv.Delay(zktest.ToServer, 2*time.Second, conn.SessionID())
			_, err := w.mutex(conn).Contenders(ctx)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			runTest(t, 1, func(w *harness) {
				w.createLockNode()
				for _, name := range []string{"a", "b", "c"} {
					w.create("/locks/" + name)
				}
				ahead := w.createContender("-lock-")
				conn := w.connect()
				w.srv.Delay(zktest.ToServer, time.Second, conn.SessionID())
				ctx, cancel := context.WithTimeout(w.Context(), limit)
				defer cancel()
				w.requireElapsed(limit, func() { require.ErrorIs(w, call(ctx, w, conn), context.DeadlineExceeded) })
				w.srv.Heal()
				w.passTime(timeout)
				w.requireContenders(ahead)
			})
		})
	}
}

// TestRWMutex_RejectsContendersIfNumbersAreExhausted checks that an RWMutex rejects new contenders after its
// sequence numbers are exhausted, and that contenders that have joined before keep their order.
// Scenario 32 of docs/traps.md.
func TestRWMutex_RejectsContendersIfNumbersAreExhausted(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		w.createLockNode()
		require.NoError(w, w.srv.SetSequence(node, math.MaxInt32-3))
		x := w.write(w.connect())
		r := w.read(w.connect())
		last := w.write(w.connect())
		w.read(w.connect()).requireFails(recipes.ErrNodeExhausted)
		x.downgrade()
		w.passTime(0)
		require.Contains(w, x.hold.Path(), "__READ__2147483644")
		r.release()
		last.requireWaits()
		x.release()
		last.release()
	})
}

// TestLock_RecoversFromBreakAtEachRequest checks that a contender recovers if its connection breaks at any one
// of its requests (CURATOR-518, helix #2815). This test covers the requests of locks;
// TestContender_ContinuesAfterAnyRequestFails of package queue covers the requests of the shared queue.
// Scenario 41 of docs/traps.md.
func TestLock_RecoversFromBreakAtEachRequest(t *testing.T) {
	for _, kind := range []string{"delay", "read", "write"} {
		for _, l := range bubble.LostReplies {
			t.Run(kind+", "+l.Name, func(t *testing.T) {
				k := 1
				for met := true; met; k++ {
					runTest(t, 1, func(w *harness) {
						met = breakAtRequest(w, kind, l, k)
					})
				}
				require.Greater(t, k, 15)
			})
		}
	}
}

// breakAtRequest breaks the connection at the k-th request of a contender that waits, holds and releases. It
// returns false if the contender sends fewer requests.
func breakAtRequest(w *harness, kind string, l bubble.Fault, k int) bool {
	w.createLockNode()
	base := map[string]string{"delay": "-lock-", "read": "-__WRIT__", "write": "-__READ__"}[kind]
	ahead, conn := w.createContender(base), w.connect()
	session := conn.SessionID()
	broken := l.Set(w.srv, zktest.Match{Session: session, Path: node + "*", Nth: k})
	var a *call
	var x *writer
	switch kind {
	case "delay":
		a = w.lock(conn, withDelay)
	case "read":
		a = w.read(conn)
	case "write":
		x = w.write(conn)
		a = x.call
	}
	w.passTime(timeout + moment)
	a.requireWaits()
	w.remove(ahead)
	w.passTime(3 * timeout)
	<-a.done
	require.NoError(w, a.err)
	if lost := a.hold.Err(); lost != nil {
		// A hold is lost only if no reply arrived until the lease expired.
		require.True(w, l.Silent, "request %d: %v", k, lost)
		require.ErrorIs(w, lost, recipes.ErrLeaseExpired)
	} else if x != nil {
		down := bubble.Async(func() error { return x.write.Downgrade() })
		w.passTime(timeout)
		if err := <-down; err != nil {
			require.True(w, l.Silent, "request %d: %v", k, err)
		}
	}
	released := bubble.Async(func() error { return bubble.Repeated(a.hold.Release) })
	w.passTime(2 * timeout)
	require.Len(w, released, 1, "request %d", k)
	require.NoError(w, <-released, "request %d", k)
	w.requireContenders()
	require.Equal(w, session, conn.SessionID())
	return bubble.HasRun(broken)
}

// TestMutex_IsNotHeldAfterSessionExpiry checks that a Mutex whose hold was lost by session expiry is not
// considered held in its process. Curator's InterProcessMutex stores in the process which thread holds it.
// Scenario 15 of docs/traps.md.
func TestMutex_IsNotHeldAfterSessionExpiry(t *testing.T) {
	runTest(t, 3, func(w *harness) {
		conn := w.connect()
		m := w.mutex(conn)
		a := w.startCall(conn, m.Lock)
		next := w.lock(w.connect())
		h := a.requireHolds()
		w.expire(conn)
		w.passTime(timeout)
		w.allowOverlap = true
		require.Error(w, h.Err())
		next.requireHolds()
		_, err := m.TryLock(w.Context())
		require.ErrorIs(w, err, ErrHeld, "with the same Mutex and connection")
		_, err = h.Multi()
		require.ErrorIs(w, err, recipes.ErrNotHeld)
		require.NoError(w, h.Release())
		next.requireOnlyZnode()
	})
}

// TestLock_ReturnsErrConnClosedOnClosedConnection checks that the methods of locks return ErrConnClosed if the
// connection was closed before the call (kazoo #482).
// Scenario 22 of docs/traps.md.
func TestLock_ReturnsErrConnClosedOnClosedConnection(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		conn := w.connect()
		m, rw, multi, s := w.mutex(conn), w.rw(conn), w.multi(conn, "a", "b"), w.semaphore(conn, 1)
		conn.Close()
		w.passTime(time.Second)
		for name, call := range map[string]func() error{
			"Lock":           func() error { _, err := m.Lock(w.Context()); return err },
			"TryLock":        func() error { _, err := m.TryLock(w.Context()); return err },
			"RLock":          func() error { _, err := rw.RLock(w.Context()); return err },
			"TryRLock":       func() error { _, err := rw.TryRLock(w.Context()); return err },
			"Contenders":     func() error { _, err := m.Contenders(w.Context()); return err },
			"RequestRelease": func() error { return m.RequestRelease(w.Context(), Contender{Path: node + "/x"}) },
			"Multi":          func() error { _, err := multi.Lock(w.Context()); return err },
			"Acquire":        func() error { _, err := s.Acquire(w.Context(), 1); return err },
			"TryAcquire":     func() error { _, err := s.TryAcquire(w.Context(), 1); return err },
			"Limit":          func() error { _, err := s.Limit(w.Context()); return err },
			"SetLimit":       func() error { return s.SetLimit(w.Context(), 2) },
			"Wait":           func() error { _, err := m.Join(w.Context()).Wait(); return err },
			"Position":       func() error { _, err := m.Join(w.Context()).Position(w.Context()); return err },
		} {
			returned := bubble.Async(call)
			w.passTime(time.Second)
			require.Len(w, returned, 1, name)
			require.ErrorIs(w, <-returned, recipes.ErrConnClosed, name)
		}
	})
}

// TestLock_WaitsForHandWrittenContender checks that locks treat an ephemeral child with any name that ends in
// ten digits, as hand-written locks create it, as a writer.
func TestLock_WaitsForHandWrittenContender(t *testing.T) {
	for _, name := range []string{"/x-", "/n_", "/", "/write-", "/read-"} {
		runTest(t, 1, func(w *harness) {
			w.createLockNode()
			ahead, err := w.operator.Create(node+name, []byte("of another program"), zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
			require.NoError(w, err)
			a := w.lock(w.connect())
			a.requireWaits()
			_, err = w.mutex(w.operator).TryLock(w.Context())
			require.ErrorIs(w, err, ErrHeld)
			all, err := w.mutex(w.operator).Contenders(w.Context())
			require.NoError(w, err)
			require.Len(w, all, 2)
			require.Equal(w, ahead, all[0].Path)
			require.True(w, all[0].Holds)
			require.False(w, all[1].Holds)
			w.remove(ahead)
			w.passTime(0)
			a.release()

			ahead, err = w.operator.Create(w.rw(w.operator).setup.Path+name, nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
			require.NoError(w, err)
			r, x := w.read(w.connect()), w.write(w.connect())
			r.requireWaits()
			x.requireWaits()
			w.remove(ahead)
			w.passTime(0)
			r.release()
			x.release()
		})
	}
}
