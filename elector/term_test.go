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

// TestBegin_ContextOutlivesBegin checks that the context of Begin is not cancelled when Begin returns, and is
// cancelled when the leadership is lost.
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

// TestHandlers_ReceiveContextValuesOfRun checks that handlers receive the values of the context of Run.
func TestHandlers_ReceiveContextValuesOfRun(t *testing.T) {
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

// TestBegin_IsInterruptedByLoss checks that the loss of the leadership cancels the context of Begin and is not
// handled as an error, and that End is called because Begin may have had effects.
func TestBegin_IsInterruptedByLoss(t *testing.T) {
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

// TestRun_NoticesLeaseExpiryDuringBegin checks that Run notices, without an event, that the lease has expired
// before Begin has returned. A process that was suspended may continue before it receives an event.
func TestRun_NoticesLeaseExpiryDuringBegin(t *testing.T) {
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

// TestBegin_IsInterruptedByTimeout checks that BeginTimeout cancels the context of Begin, and that End is
// called.
func TestBegin_IsInterruptedByTimeout(t *testing.T) {
	runElector(t, func(h *harness) { h.elector.Begin = h.blockUntilDone("begin") }, func(h *harness) {
		first := h.backend.newest()
		h.lead()
		h.wait(time.Minute)
		h.requireEvents("0s begin 1", "1m0s begin done: "+errBeginTimeout.Error(), "1m0s end 1", "1m0s error 1")
		require.ErrorIs(h, h.elector.Current().Err, ErrBegin)
		require.False(h, first.isActive())
	})
}

// TestRun_LeadsOrEndsIfBeginReturnsAtTimeout checks that a program does not remain the leader with a context
// that is done if Begin returns at the moment of BeginTimeout. The scheduler determines which of the two comes
// first.
func TestRun_LeadsOrEndsIfBeginReturnsAtTimeout(t *testing.T) {
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

// TestBegin_IsInterruptedByContextOfRun checks that the context of Begin is done when the context of Run is
// done, and that End is called.
func TestBegin_IsInterruptedByContextOfRun(t *testing.T) {
	runElector(t, func(h *harness) { h.elector.Begin = h.blockUntilDone("begin") }, func(h *harness) {
		h.lead()
		h.stop()
		require.NoError(h, h.requireReturned())
		h.requireEvents("0s begin 1", "0s begin done: context canceled", "0s end 1")
	})
}

// TestEnd_IsRetriedBeforeLeadershipIsReleased checks that an End that always fails is called 12 times, every 5
// s, and that the leadership is not released before the last call.
func TestEnd_IsRetriedBeforeLeadershipIsReleased(t *testing.T) {
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

// TestEnd_ObeysEndTriesAndEndPause checks that an End that always fails is called EndTries times with EndPause
// between the calls, even if the context of Run is done.
func TestEnd_ObeysEndTriesAndEndPause(t *testing.T) {
	runElector(t, func(h *harness) {
		h.elector.End, h.elector.EndTries, h.elector.EndPause = h.handler("end", errBoom, errBoom, errBoom), 2, time.Second
	}, func(h *harness) {
		h.lead()
		h.stop() // does not shorten the pause between two calls of End
		h.wait(time.Second)
		require.ErrorIs(h, h.requireReturned(), ErrEnd)
		h.requireEvents("0s begin 1", "0s end 1", "1s end 1")
	})
}

// TestEnd_IsInterruptedByTimeout checks that the context of End is done after EndTimeout.
func TestEnd_IsInterruptedByTimeout(t *testing.T) {
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

// TestErrorWait_EndsWhenContextIsDone checks that Run returns as soon as its context is done during ErrorWait.
func TestErrorWait_EndsWhenContextIsDone(t *testing.T) {
	runElector(t, nil, func(h *harness) {
		h.backend.newest().fail(errBoom)
		h.requireState(StateError)
		h.stop()
		require.NoError(h, h.requireReturned())
		h.requireState(StateNotLeader)
	})
}

// TestErrorHandler_IsInterruptedByTimeout checks that the context of the handler Error is done after
// ErrorTimeout.
func TestErrorHandler_IsInterruptedByTimeout(t *testing.T) {
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

// TestHandlers_MayBeNil checks that the Elector leads, suspends and reports errors without handlers.
func TestHandlers_MayBeNil(t *testing.T) {
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

// TestWork_RunsBetweenBeginAndEnd checks that Work does not overlap with Begin or End.
func TestWork_RunsBetweenBeginAndEnd(t *testing.T) {
	runElector(t, func(h *harness) { h.elector.Work = h.blockUntilDone("work") }, func(h *harness) {
		h.lead()
		h.requireEvents("0s begin 1", "0s work 1")
		h.wait(time.Second)
		h.stop()
		require.NoError(h, h.requireReturned())
		h.requireEvents("0s begin 1", "0s work 1", "1s work done: context canceled", "1s end 1")
	})
}

// TestWork_IsInterruptedByLossAndCalledAgain checks that the loss of the leadership cancels the context of
// Work, and that Work is called in the next leadership.
func TestWork_IsInterruptedByLossAndCalledAgain(t *testing.T) {
	runElector(t, func(h *harness) { h.elector.Work = h.blockUntilDone("work") }, func(h *harness) {
		h.lead()
		h.backend.newest().suspend()
		h.lead()
		h.requireEvents(
			"0s begin 1", "0s work 1", "0s work done: lease expired: it was not confirmed in time", "0s end 1 lost",
			"0s begin 2", "0s work 2")
	})
}

// TestWork_FailureEndsLeadership checks that the Elector releases the leadership if Work returns an error.
func TestWork_FailureEndsLeadership(t *testing.T) {
	runElector(t, func(h *harness) { h.elector.Work = h.handler("work", errBoom) }, func(h *harness) {
		first := h.backend.newest()
		h.lead()
		h.requireEvents("0s begin 1", "0s work 1", "0s end 1", "0s error 1")
		require.ErrorIs(h, h.elector.Current().Err, ErrWork)
		require.ErrorIs(h, h.elector.Current().Err, errBoom)
		require.False(h, first.isActive())
	})
}

// TestWork_CompletionEndsRun checks that Run calls End and returns nil after Work has returned nil during the
// leadership.
func TestWork_CompletionEndsRun(t *testing.T) {
	runElector(t, func(h *harness) { h.elector.Work = h.handler("work") }, func(h *harness) {
		h.lead()
		require.NoError(h, h.requireReturned())
		h.requireEvents("0s begin 1", "0s work 1", "0s end 1")
		require.False(h, h.backend.newest().isActive())
	})
}

// TestWork_DoesNotCompleteAfterLoss checks that Run does not take the work for complete if Work returns nil
// after the loss of the leadership.
func TestWork_DoesNotCompleteAfterLoss(t *testing.T) {
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

// TestWork_DoesNotCompleteAfterLeaseExpiry checks that Run does not take the work for complete if Work returns
// nil after the lease has expired and before an event. A process that was suspended may continue before it
// receives an event.
func TestWork_DoesNotCompleteAfterLeaseExpiry(t *testing.T) {
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

// TestRun_ReturnsErrorOfWorkAfterContextIsDone checks that Run returns an error that Work returns after the
// context of Run is done, unless it is the error of the context.
func TestRun_ReturnsErrorOfWorkAfterContextIsDone(t *testing.T) {
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

// TestRun_ReportsWorkThatExitsGoroutine checks that Run takes a Work that calls runtime.Goexit, as t.FailNow
// does, for failed, instead of waiting forever.
func TestRun_ReportsWorkThatExitsGoroutine(t *testing.T) {
	runElector(t, func(h *harness) {
		h.elector.Work = func(context.Context, *leaderelection.Leadership) error { runtime.Goexit(); return nil }
	}, func(h *harness) {
		h.lead()
		h.requireEvents("0s begin 1", "0s end 1", "0s error 1")
		require.ErrorIs(h, h.elector.Current().Err, errExited)
	})
}

// TestRun_RetriesAfterHandlerReturnsErrHung checks that Run treats an ErrHung that a handler returns like any
// other error, because a handler may run another Elector.
func TestRun_RetriesAfterHandlerReturnsErrHung(t *testing.T) {
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
