package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestHold_EndsBeforeZnodeIsDeleted checks that a hold ends before its znode is deleted: Done is closed before
// another client can hold the lock.
func TestHold_EndsBeforeZnodeIsDeleted(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		a := w.lock(w.connect())
		h := a.requireHolds()
		ended, leave := false, h.stop
		var first sync.Once // the contender's goroutine also calls the hook
		h.stop = func(reason error) {
			first.Do(func() { ended = h.Err() != nil })
			leave(reason)
		}
		a.release()
		require.True(w, ended)
	})
}

// TestHold_ReleaseSucceedsAfterContextsAreDone checks that Release returns nil after success, although the contexts
// of the hold and of the program are done. If the servers do not answer, Release returns ErrUnconfirmed after a
// limited time, and can be called again.
func TestHold_ReleaseSucceedsAfterContextsAreDone(t *testing.T) {
	for name, acquire := range map[string]func(context.Context, *harness, *zk.Conn) (h grantHandle, end func() error){
		"mutex": func(ctx context.Context, w *harness, conn *zk.Conn) (grantHandle, func() error) {
			h, err := w.mutex(conn).Lock(ctx)
			require.NoError(w, err)
			return h, h.Release
		},
		"writer": func(ctx context.Context, w *harness, conn *zk.Conn) (grantHandle, func() error) {
			h, err := w.rw(conn).Lock(ctx)
			require.NoError(w, err)
			return h, h.Release
		},
		"downgrade": func(ctx context.Context, w *harness, conn *zk.Conn) (grantHandle, func() error) {
			h, err := w.rw(conn).Lock(ctx)
			require.NoError(w, err)
			return h, func() error { return errors.Join(h.Downgrade(), h.Release()) }
		},
		"semaphore": func(ctx context.Context, w *harness, conn *zk.Conn) (grantHandle, func() error) {
			s, err := NewSemaphore(conn, "/leases", 1)
			require.NoError(w, err)
			h, err := s.Acquire(ctx, 1)
			require.NoError(w, err)
			return h, h.Release
		},
		"single": func(ctx context.Context, w *harness, conn *zk.Conn) (grantHandle, func() error) {
			h, err := w.single(conn, "owner").Lock(ctx)
			require.NoError(w, err)
			return h, h.Release
		},
		"several locks": func(ctx context.Context, w *harness, conn *zk.Conn) (grantHandle, func() error) {
			h, err := w.multi(conn, "a", "b").Lock(ctx)
			require.NoError(w, err)
			return h, h.Release
		},
	} {
		for _, partition := range []bool{false, true} {
			if partition && name == "downgrade" {
				continue // TestDowngrade_ContinuesAfterTimeLimitOfCall covers Downgrade: here the lease would expire first
			}
			t.Run(fmt.Sprintf("%s, partition=%v", name, partition), func(t *testing.T) {
				runTest(t, 1, func(w *harness) {
					conn := w.connect()
					ctx, cancel := context.WithCancel(w.Context())
					h, end := acquire(ctx, w, conn)
					cancel()
					w.srv.Delay(zktest.BothWays, 5*time.Millisecond)
					if partition {
						w.srv.Partition(conn.SessionID())
						w.requireElapsed(limit.Confirm, func() { require.ErrorIs(w, end(), recipes.ErrUnconfirmed) })
						w.srv.Heal()
					}
					require.NoError(w, bubble.Repeated(end))
					require.ErrorIs(w, h.Err(), recipes.ErrReleased)
					require.ErrorIs(w, context.Cause(h.Context()), recipes.ErrReleased)
				})
			})
		}
	}
}

// grantHandle is a Hold, a WriteHold or a MultiHold.
type grantHandle interface {
	Context() context.Context
	Err() error
}

// TestHold_CanBeReleasedByAnyGoroutine checks that any goroutine can release a hold, and that a hold does not
// belong to the goroutine that has acquired it. Users of kazoo misunderstand which thread holds a lock, and
// whether this thread can acquire it again (kazoo #291, #134, #315).
// Scenario 54 of docs/traps.md.
func TestHold_CanBeReleasedByAnyGoroutine(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		conn := w.connect()
		m := w.mutex(conn)
		first := w.startCall(conn, m.Lock)
		w.passTime(0)
		h := first.requireHolds()
		second := w.startCall(conn, m.Lock) // the second call uses the same Mutex and the same connection
		w.passTime(timeout)
		second.requireWaits()
		_, err := m.Lock(h.Context())
		require.ErrorIs(w, err, ErrReentrant, "Lock would wait for the caller's hold")
		_, err = m.TryLock(h.Context())
		require.ErrorIs(w, err, ErrReentrant)

		// Any goroutine can release a hold, and can do so repeatedly. Other holds are not affected.
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { require.NoError(w, h.Release()) })
		}
		all.Wait()
		w.passTime(0)
		g := second.requireHolds()
		require.NoError(w, h.Release())
		w.passTime(time.Second)
		require.NoError(w, g.Err())
		require.ErrorIs(w, h.Err(), recipes.ErrReleased)
		_, err = m.Lock(h.Context())
		require.ErrorIs(w, err, recipes.ErrReleased, "the context of a released hold does not prevent another acquisition")
	})
}

// TestLock_AcceptsContextOfReleasedHold checks that Lock accepts a context that has outlived its hold: the
// caller does not hold the lock any more, so that Lock cannot wait for the caller.
func TestLock_AcceptsContextOfReleasedHold(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		a := w.lock(w.connect())
		ctx := context.WithoutCancel(a.requireHolds().Context())
		_, err := w.mutex(a.conn).Lock(ctx)
		require.ErrorIs(w, err, ErrReentrant)
		a.release()
		h, err := w.mutex(a.conn).Lock(ctx)
		require.NoError(w, err)
		require.NoError(w, h.Release())

		r := w.read(a.conn)
		ctx = context.WithoutCancel(r.requireHolds().Context())
		r.release()
		x, err := w.rw(a.conn).TryLock(ctx)
		require.NoError(w, err)
		require.NoError(w, x.Release())
	})
}
