package lock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

type ctxKey struct{}

// lockScope is the Do method of a lock, which calls f while it holds the lock.
type lockScope func(ctx context.Context, f func(context.Context, held) error, opts ...DoOption) error

// lockScopes returns the Do method of each kind of lock, on a new connection.
func (w *harness) lockScopes() map[string]lockScope {
	conn := w.connect()
	all, err := NewMultiLock(w.mutex(conn), w.rwAt(conn, "/locks/two").Writing())
	require.NoError(w, err)
	s, err := NewSemaphore(conn, "/locks/three", 1, recipes.WithSessionTimeout(timeout))
	require.NoError(w, err)
	rw := w.rwAt(conn, "/locks/two")
	return map[string]lockScope{
		"mutex": func(ctx context.Context, f func(context.Context, held) error, opts ...DoOption) error {
			return w.mutex(conn).Do(ctx, func(ctx context.Context, h *Hold) error { return f(ctx, h) }, opts...)
		},
		"writer": func(ctx context.Context, f func(context.Context, held) error, opts ...DoOption) error {
			return rw.Do(ctx, func(ctx context.Context, h *WriteHold) error { return f(ctx, h) }, opts...)
		},
		"reader": func(ctx context.Context, f func(context.Context, held) error, opts ...DoOption) error {
			return rw.RDo(ctx, func(ctx context.Context, h *Hold) error { return f(ctx, h) }, opts...)
		},
		"semaphore": func(ctx context.Context, f func(context.Context, held) error, opts ...DoOption) error {
			return s.Do(ctx, 1, func(ctx context.Context, h *Hold) error { return f(ctx, h) }, opts...)
		},
		"single": func(ctx context.Context, f func(context.Context, held) error, opts ...DoOption) error {
			s, err := NewSingle(conn, "/locks/single-lock", nil, recipes.WithSessionTimeout(timeout))
			require.NoError(w, err)
			return s.Do(ctx, func(ctx context.Context, h *Hold) error { return f(ctx, h) }, opts...)
		},
		"several locks": func(ctx context.Context, f func(context.Context, held) error, opts ...DoOption) error {
			return all.Do(ctx, func(ctx context.Context, h *MultiHold) error { return f(ctx, h) }, opts...)
		},
	}
}

// eachScope runs f once for each kind of lock.
func eachScope(t *testing.T, f func(w *harness, do lockScope)) {
	for _, name := range []string{"mutex", "writer", "reader", "semaphore", "single", "several locks"} {
		t.Run(name, func(t *testing.T) {
			runTest(t, 1, func(w *harness) {
				w.createLockNode()
				f(w, w.lockScopes()[name])
			})
		})
	}
}

// TestDo_ReleasesAfterFunction checks that Do calls the function once with the hold, and releases the lock
// afterwards, whether the function succeeds, fails, panics or releases the hold itself.
func TestDo_ReleasesAfterFunction(t *testing.T) {
	failed := errors.New("failed")
	for name, result := range map[string]error{"succeeds": nil, "fails": failed} {
		t.Run(name, func(t *testing.T) {
			eachScope(t, func(w *harness, do lockScope) {
				var hold held
				err := do(context.WithValue(w.Context(), ctxKey{}, "value"), func(ctx context.Context, h held) error {
					require.Nil(w, hold, "Do has called the function twice")
					require.NoError(w, h.Err())
					require.NoError(w, ctx.Err())
					require.Equal(w, "value", ctx.Value(ctxKey{}))
					hold = h
					return result
				})
				require.Equal(w, result, err)
				require.ErrorIs(w, hold.Err(), recipes.ErrReleased)
				w.requireContenders()
			})
		})
	}
	t.Run("panics", func(t *testing.T) {
		eachScope(t, func(w *harness, do lockScope) {
			require.PanicsWithValue(w, "failed", func() {
				_ = do(w.Context(), func(context.Context, held) error { panic("failed") })
			})
			w.requireContenders()
		})
	})
	t.Run("releases", func(t *testing.T) {
		eachScope(t, func(w *harness, do lockScope) {
			require.NoError(w, do(w.Context(), func(ctx context.Context, h held) error {
				require.NoError(w, h.Release())
				require.ErrorIs(w, context.Cause(ctx), recipes.ErrReleased)
				return nil
			}))
		})
	})
}

// TestDo_EndsContextAndFailsIfLockIsLost checks that the context of the function ends when the lock is lost,
// and that Do then returns ErrNotHeld even if the function succeeds.
func TestDo_EndsContextAndFailsIfLockIsLost(t *testing.T) {
	eachScope(t, func(w *harness, do lockScope) {
		err := do(w.Context(), func(ctx context.Context, h held) error {
			for _, path := range w.contenders() {
				w.remove(path)
			}
			<-ctx.Done()
			require.ErrorIs(w, context.Cause(ctx), recipes.ErrDeleted)
			return nil
		})
		require.ErrorIs(w, err, recipes.ErrNotHeld)
		require.ErrorIs(w, err, recipes.ErrDeleted)
	})
}

// TestDo_HoldsLockUntilCancelledFunctionReturns checks that the context of the function ends with the context
// of the caller, and that the lock is held until the function returns.
func TestDo_HoldsLockUntilCancelledFunctionReturns(t *testing.T) {
	eachScope(t, func(w *harness, do lockScope) {
		ctx, cancel := context.WithCancelCause(w.Context())
		cause := errors.New("cancelled")
		err := do(ctx, func(ctx context.Context, h held) error {
			cancel(cause)
			<-ctx.Done()
			require.NoError(w, h.Err())
			return context.Cause(ctx)
		})
		require.Equal(w, cause, err)
		require.ErrorIs(w, do(ctx, func(context.Context, held) error {
			require.Fail(w, "Do has called the function")
			return nil
		}), cause)
	})
}

// TestDo_OptionsLimitOnlyWait checks that WithoutWaiting and WithWaitLimit limit the time for which Do waits
// for the lock, but not the run time of the function.
func TestDo_OptionsLimitOnlyWait(t *testing.T) {
	// The list contains no reader, because readers do not exclude each other.
	for _, name := range []string{"mutex", "writer", "semaphore", "single", "several locks"} {
		t.Run(name, func(t *testing.T) {
			runTest(t, 1, func(w *harness) {
				w.createLockNode()
				first, second := w.lockScopes()[name], w.lockScopes()[name]
				uncalled := func(context.Context, held) error { require.Fail(w, "Do has called the function"); return nil }
				require.NoError(w, first(w.Context(), func(ctx context.Context, _ held) error {
					w.requireElapsed(0, func() { require.ErrorIs(w, second(ctx, uncalled, WithoutWaiting()), ErrHeld) })
					w.requireElapsed(time.Minute, func() {
						require.ErrorIs(w, second(ctx, uncalled, WithWaitLimit(time.Minute)), context.DeadlineExceeded)
					})
					return nil
				}))
				require.NoError(w, second(w.Context(), func(ctx context.Context, _ held) error {
					w.passTime(time.Hour)
					return ctx.Err()
				}, WithWaitLimit(time.Minute)))
				require.ErrorIs(w, first(w.Context(), uncalled, WithWaitLimit(0)), recipes.ErrInvalid)
				require.ErrorIs(w, first(w.Context(), uncalled, nil), recipes.ErrInvalid)
			})
		})
	}
}

// TestDo_RejectsReentrantCall checks that a function that calls Do of the lock that it holds receives
// ErrReentrant instead of waiting forever.
func TestDo_RejectsReentrantCall(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		m := w.mutex(w.connect())
		require.ErrorIs(w, m.Do(w.Context(), func(ctx context.Context, _ *Hold) error {
			return m.Do(ctx, func(context.Context, *Hold) error { return nil })
		}), ErrReentrant)
	})
}

// TestDo_WaitSurvivesSessionExpiry checks that a call of Do that waits for the lock continues after its session
// has expired, and that a call whose function already runs returns ErrNotHeld.
func TestDo_WaitSurvivesSessionExpiry(t *testing.T) {
	runTest(t, 3, func(w *harness) {
		w.allowOverlap = true // the test ends sessions whose leases are valid, so two holds can overlap
		holder, conn := w.lock(w.connect()), w.connect()
		calls := 0
		done := bubble.Async(func() error {
			return w.mutex(conn).Do(w.Context(), func(ctx context.Context, h *Hold) error {
				calls++
				<-ctx.Done()
				return nil
			})
		})
		w.passTime(0)
		for range 3 {
			w.expire(conn)
			w.passTime(timeout)
		}
		require.Len(w, w.contenders(), 2)
		holder.release()
		w.passTime(0)
		require.Equal(w, 1, calls)
		w.expire(conn)
		w.passTime(timeout)
		require.ErrorIs(w, <-done, recipes.ErrNotHeld)
		require.Equal(w, 1, calls)
	})
}

// TestDo_ReturnsResultIfReleaseIsUnconfirmed checks that Do returns the result of the function even if the
// servers do not confirm the release of the lock.
func TestDo_ReturnsResultIfReleaseIsUnconfirmed(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		conn := w.connect()
		w.requireElapsed(limit.Confirm, func() {
			require.NoError(w, w.mutex(conn).Do(w.Context(), func(context.Context, *Hold) error {
				w.srv.Before(zktest.Match{Op: zktest.OpDelete, Session: conn.SessionID(), Nth: 1}, func(q *zktest.Request) zktest.Verdict {
					w.srv.Blackhole(zktest.BothWays, conn.SessionID())
					return zktest.Cut(q)
				})
				w.srv.Refuse(true)
				return nil
			}))
		})
		w.restore()
		w.passTime(timeout)
	})
}
