package elector

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
)

// TestBegin_ContextOutlivesBegin fails if the context is cancelled when Begin returns, or later than the
// leadership is lost.
func TestBegin_ContextOutlivesBegin(t *testing.T) {
	type key struct{}
	var ctx context.Context
	runElector(t, func(h *harness) {
		h.elector.Begin = func(c context.Context, l *leaderelection.Leadership) error { ctx = c; return nil }
	}, func(h *harness) {
		h.lead()
		h.wait(time.Hour)
		require.NoError(h, ctx.Err())
		require.Nil(h, ctx.Value(key{}))
		h.backend.newest().loseLeadership(leaderelection.ErrLeaseExpired)
		require.Error(h, ctx.Err(), "not at the same instant as the leadership")
		require.ErrorIs(h, context.Cause(ctx), leaderelection.ErrLeaseExpired)
	})
}

// TestHandlers_ContextValues fails if a handler does not receive the values of the context of Run.
func TestHandlers_ContextValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		h := newHarness(t)
		check := func(ctx context.Context, _ *leaderelection.Leadership) error {
			if ctx.Value(key{}) != 42 {
				return errors.New("the value is missing")
			}
			h.record("ok")
			return nil
		}
		h.elector.Begin, h.elector.Work, h.elector.End = check, check, check
		go func() {
			synctest.Wait()
			h.backend.newest().lead()
		}()
		require.NoError(t, h.elector.Run(context.WithValue(t.Context(), key{}, 42)))
		h.requireEvents("0s ok", "0s ok", "0s ok")
	})
}

// TestBegin_InterruptedByLoss fails if a loss does not interrupt Begin, is handled as an error, or if End is
// not called although Begin may have had effects.
func TestBegin_InterruptedByLoss(t *testing.T) {
	runElector(t, func(h *harness) { h.elector.Begin = h.blockUntilDone("begin") }, func(h *harness) {
		h.lead()
		h.wait(time.Second)
		h.requireState(StateNotLeader)
		h.backend.newest().suspend()
		h.requireEvents("0s begin 1", "1s begin done: lease expired: it was not confirmed in time", "1s end 1 lost")
		h.requireState(StateNotLeader)
		require.True(h, h.backend.newest().isActive())
	})
}

// TestBegin_LeaseExpiresWithoutEvent fails if a lease that has expired before Begin returns is noticed only
// after an event. A process that was stopped may continue before it receives one.
func TestBegin_LeaseExpiresWithoutEvent(t *testing.T) {
	runElector(t, func(h *harness) {
		h.backend.lease = time.Second
		h.elector.Begin = func(context.Context, *leaderelection.Leadership) error {
			time.Sleep(time.Second)
			return errBoom
		}
	}, func(h *harness) {
		h.lead()
		h.wait(time.Second)
		h.requireEvents("1s end 1 lost")
		h.requireState(StateNotLeader)
	})
}

// TestBegin_Timeout fails if BeginTimeout does not interrupt Begin, or if End is not called.
func TestBegin_Timeout(t *testing.T) {
	runElector(t, func(h *harness) { h.elector.Begin = h.blockUntilDone("begin") }, func(h *harness) {
		first := h.backend.newest()
		h.lead()
		h.wait(time.Minute)
		h.requireEvents("0s begin 1", "1m0s begin done: "+errBeginTimeout.Error(), "1m0s end 1", "1m0s error 1")
		require.ErrorIs(h, h.elector.Current().Err, ErrBegin)
		require.False(h, first.isActive())
	})
}

// TestBegin_ReturnsAtTimeout fails if this program remains the leader with a context that is done, because Begin has
// returned at the moment of BeginTimeout. Which of the two is first depends on the scheduler.
func TestBegin_ReturnsAtTimeout(t *testing.T) {
	for range 100 {
		var ctx context.Context
		runElector(t, func(h *harness) {
			h.elector.Begin = func(c context.Context, _ *leaderelection.Leadership) error {
				ctx = c
				time.Sleep(time.Minute)
				return nil
			}
		}, func(h *harness) {
			h.lead()
			h.wait(time.Minute)
			if ctx.Err() == nil {
				h.requireState(StateLeader)
				return
			}
			require.ErrorIs(h, context.Cause(ctx), errBeginTimeout)
			h.requireEvents("1m0s end 1", "1m0s error 1")
			h.requireState(StateError)
		})
	}
}

// TestBegin_InterruptedByContext fails if Begin continues after the context of Run is done.
func TestBegin_InterruptedByContext(t *testing.T) {
	runElector(t, func(h *harness) { h.elector.Begin = h.blockUntilDone("begin") }, func(h *harness) {
		h.lead()
		h.stop()
		require.NoError(h, h.requireReturned())
		h.requireEvents("0s begin 1", "0s begin done: context canceled", "0s end 1")
	})
}

// TestEnd_FailsPermanently fails if End is not called 12 times, every 5 s, or if the leadership is lost
// before.
func TestEnd_FailsPermanently(t *testing.T) {
	runElector(t, func(h *harness) {
		h.elector.End = func(_ context.Context, l *leaderelection.Leadership) error {
			if l.Err() != nil {
				h.record("the leadership is lost")
			}
			h.record("end")
			return errBoom
		}
		h.elector.Work = func(context.Context, *leaderelection.Leadership) error { return errors.New("no work") }
	}, func(h *harness) {
		h.lead()
		h.wait(55*time.Second - 1)
		h.requireRunning()
		h.wait(1)
		err := h.requireReturned()
		require.ErrorIs(h, err, ErrEnd)
		require.ErrorIs(h, err, ErrWork)
		require.ErrorIs(h, err, errBoom)
		require.ErrorContains(h, err, "may still run")
		require.False(h, h.backend.newest().isActive(), "no other candidate can lead")
		events := []string{"0s begin 1"}
		for i := range 12 {
			events = append(events, fmt.Sprintf("%v end", time.Duration(i)*5*time.Second))
		}
		h.requireEvents(events...)
	})
}

// TestEnd_CustomRetries fails if EndTries and EndPause are ignored.
func TestEnd_CustomRetries(t *testing.T) {
	runElector(t, func(h *harness) {
		h.elector.End, h.elector.EndTries, h.elector.EndPause = h.handler("end", errBoom, errBoom, errBoom), 2, time.Second
	}, func(h *harness) {
		h.lead()
		h.stop() // does not shorten the pause
		h.wait(time.Second)
		require.ErrorIs(h, h.requireReturned(), ErrEnd)
		h.requireEvents("0s begin 1", "0s end 1", "1s end 1")
	})
}

// TestEnd_Timeout fails if EndTimeout does not interrupt a call of End.
func TestEnd_Timeout(t *testing.T) {
	runElector(t, func(h *harness) {
		tries := 0
		h.elector.End = func(ctx context.Context, l *leaderelection.Leadership) error {
			if tries++; tries == 2 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}
	}, func(h *harness) {
		h.lead()
		h.stop()
		h.wait(35*time.Second - 1)
		h.requireRunning()
		h.wait(1)
		require.NoError(h, h.requireReturned())
	})
}

// TestErrorWait_ContextDone fails if Run does not return while it waits after an error.
func TestErrorWait_ContextDone(t *testing.T) {
	runElector(t, nil, func(h *harness) {
		h.backend.newest().fail(errBoom)
		h.requireState(StateError)
		h.stop()
		require.NoError(h, h.requireReturned())
		h.requireState(StateNotLeader)
	})
}

// TestError_Timeout fails if ErrorTimeout does not interrupt Error.
func TestError_Timeout(t *testing.T) {
	runElector(t, func(h *harness) {
		h.elector.Error = func(ctx context.Context, _ *leaderelection.Leadership, _ error) error {
			<-ctx.Done()
			h.record("done")
			return nil
		}
	}, func(h *harness) {
		h.backend.newest().fail(errBoom)
		h.wait(30 * time.Second)
		h.requireEvents("30s done")
		h.wait(30 * time.Second)
		h.requireState(StateNotLeader)
	})
}

// TestHandlers_Optional fails if a nil handler is called.
func TestHandlers_Optional(t *testing.T) {
	runElector(t, func(h *harness) { h.elector.Begin, h.elector.End, h.elector.Error = nil, nil, nil }, func(h *harness) {
		h.lead()
		h.requireState(StateLeader)
		h.backend.newest().suspend()
		h.requireState(StateNotLeader)
		h.backend.newest().fail(errBoom)
		h.requireState(StateError)
		h.wait(30 * time.Second)
		h.requireState(StateNotLeader)
	})
}

// TestWork_BetweenBeginAndEnd fails if Work overlaps with Begin or End.
func TestWork_BetweenBeginAndEnd(t *testing.T) {
	runElector(t, func(h *harness) { h.elector.Work = h.blockUntilDone("work") }, func(h *harness) {
		h.lead()
		h.requireEvents("0s begin 1", "0s work 1")
		h.wait(time.Second)
		h.stop()
		require.NoError(h, h.requireReturned())
		h.requireEvents("0s begin 1", "0s work 1", "1s work done: context canceled", "1s end 1")
	})
}

// TestWork_InterruptedByLoss fails if a loss does not cancel Work, or if Work does not run again.
func TestWork_InterruptedByLoss(t *testing.T) {
	runElector(t, func(h *harness) { h.elector.Work = h.blockUntilDone("work") }, func(h *harness) {
		h.lead()
		h.backend.newest().suspend()
		h.lead()
		h.requireEvents(
			"0s begin 1", "0s work 1", "0s work done: lease expired: it was not confirmed in time", "0s end 1 lost",
			"0s begin 2", "0s work 2")
	})
}

// TestWork_Fails fails if a leader whose Work has failed keeps the leadership.
func TestWork_Fails(t *testing.T) {
	runElector(t, func(h *harness) { h.elector.Work = h.handler("work", errBoom) }, func(h *harness) {
		first := h.backend.newest()
		h.lead()
		h.requireEvents("0s begin 1", "0s work 1", "0s end 1", "0s error 1")
		require.ErrorIs(h, h.elector.Current().Err, ErrWork)
		require.ErrorIs(h, h.elector.Current().Err, errBoom)
		require.False(h, first.isActive())
	})
}

// TestWork_Completed fails if Run does not return after the work is complete.
func TestWork_Completed(t *testing.T) {
	runElector(t, func(h *harness) { h.elector.Work = h.handler("work") }, func(h *harness) {
		h.lead()
		require.NoError(h, h.requireReturned())
		h.requireEvents("0s begin 1", "0s work 1", "0s end 1")
		require.False(h, h.backend.newest().isActive())
	})
}

// TestWork_ReturnsAfterLoss fails if a Work that returns nil after a loss counts as complete.
func TestWork_ReturnsAfterLoss(t *testing.T) {
	runElector(t, func(h *harness) {
		h.elector.Work = func(ctx context.Context, l *leaderelection.Leadership) error {
			<-ctx.Done()
			return nil
		}
	}, func(h *harness) {
		h.lead()
		h.backend.newest().suspend()
		h.requireRunning()
		h.lead()
		h.requireState(StateLeader)
		require.Equal(h, int64(2), h.elector.Current().Candidate.Leadership.Token())
	})
}

// TestWork_ReturnsAfterLeaseExpired fails if a Work counts as complete that has returned after the lease
// expired, but before an event. A process that was stopped may continue before it receives one.
func TestWork_ReturnsAfterLeaseExpired(t *testing.T) {
	runElector(t, func(h *harness) {
		h.backend.lease = time.Second
		h.elector.Work = func(ctx context.Context, l *leaderelection.Leadership) error {
			time.Sleep(time.Second)
			return nil
		}
	}, func(h *harness) {
		h.lead()
		h.wait(time.Second)
		h.requireRunning()
		h.requireEvents("0s begin 1", "1s end 1 lost")
	})
}

// TestWork_ErrorAfterContextDone fails if an error of Work is lost while Run returns.
func TestWork_ErrorAfterContextDone(t *testing.T) {
	runElector(t, func(h *harness) {
		h.elector.Work = func(ctx context.Context, l *leaderelection.Leadership) error {
			<-ctx.Done()
			return errBoom
		}
	}, func(h *harness) {
		h.lead()
		h.stop()
		require.ErrorIs(h, h.requireReturned(), ErrWork)
		require.ErrorIs(h, h.err, errBoom)
		h.requireEvents("0s begin 1", "0s end 1")
	})
}

// TestWork_ExitsGoroutine fails if Run waits for a Work that has called runtime.Goexit, as t.FailNow does.
func TestWork_ExitsGoroutine(t *testing.T) {
	runElector(t, func(h *harness) {
		h.elector.Work = func(context.Context, *leaderelection.Leadership) error { runtime.Goexit(); return nil }
	}, func(h *harness) {
		h.lead()
		h.requireEvents("0s begin 1", "0s end 1", "0s error 1")
		require.ErrorIs(h, h.elector.Current().Err, errExited)
	})
}

// TestHandlers_ReturnErrHung fails if an ErrHung that a handler returns is taken for one of this Elector. A
// handler may run another Elector.
func TestHandlers_ReturnErrHung(t *testing.T) {
	runElector(t, func(h *harness) {
		h.elector.Begin = h.handler("begin", ErrHung)
		h.elector.Work = h.handler("work", ErrHung)
		h.elector.End = h.handler("end", ErrHung)
	}, func(h *harness) {
		h.lead()
		h.requireState(StateError)
		h.wait(30 * time.Second)
		h.lead()
		h.wait(5 * time.Second)
		h.requireEvents("0s begin 1", "0s error 1", "30s begin 2", "30s work 2", "30s end 2", "35s end 2", "35s error 2")
		h.requireRunning()
	})
}
