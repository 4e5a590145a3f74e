package elector

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
)

// untilDone waits for the end of its context, and returns its cause.
func (w *world) untilDone(name string) func(context.Context, *leaderelection.Leadership) error {
	return func(ctx context.Context, l *leaderelection.Leadership) error {
		w.note("%s %d", name, l.Token())
		<-ctx.Done()
		w.note("%s done: %v", name, context.Cause(ctx))
		return context.Cause(ctx)
	}
}

// hanging ignores its context until the test is over.
func (w *world) hanging(name string) func(context.Context, *leaderelection.Leadership) error {
	over := make(chan struct{})
	w.Cleanup(func() { close(over) })
	return func(_ context.Context, l *leaderelection.Leadership) error {
		w.note("%s %d", name, l.Token())
		<-over
		return nil
	}
}

func TestBeginsContextOutlivesBegin(t *testing.T) {
	type key struct{}
	var ctx context.Context
	play(t, func(w *world) {
		w.e.Begin = func(c context.Context, l *leaderelection.Leadership) error { ctx = c; return nil }
	}, func(w *world) {
		w.leads()
		w.pass(time.Hour)
		require.NoError(w, ctx.Err())
		require.Nil(w, ctx.Value(key{}))
		w.backend.now().loses(leaderelection.ErrLeaseExpired)
		require.Error(w, ctx.Err(), "at the same instant as the leadership")
		require.ErrorIs(w, context.Cause(ctx), leaderelection.ErrLeaseExpired)
	})
}

func TestHandlersGetTheValuesOfRunsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		w := newWorld(t)
		check := func(ctx context.Context, _ *leaderelection.Leadership) error {
			if ctx.Value(key{}) != 42 {
				return errors.New("the value is missing")
			}
			w.note("ok")
			return nil
		}
		w.e.Begin, w.e.Work, w.e.End = check, check, check
		go func() {
			synctest.Wait()
			w.backend.leads()
		}()
		require.NoError(t, w.e.Run(context.WithValue(t.Context(), key{}, 42)))
		w.happened("0s ok", "0s ok", "0s ok")
	})
}

// A loss in the middle of Begin interrupts it; as it may have begun something, End is
// called, and it is no error.
func TestBeginIsInterruptedByLoss(t *testing.T) {
	play(t, func(w *world) { w.e.Begin = w.untilDone("begin") }, func(w *world) {
		w.leads()
		w.pass(time.Second)
		w.is(StateNotLeader)
		w.backend.now().follows()
		w.happened("0s begin 1", "1s begin done: lease expired: it was not confirmed in time", "1s end 1 lost")
		w.is(StateNotLeader)
		require.True(w, w.backend.now().holds())
	})
}

// A process that was stopped may go on before anything tells it of the loss.
func TestBeginIsInterruptedByTheEndOfTheLease(t *testing.T) {
	play(t, func(w *world) {
		w.backend.lease = time.Second
		w.e.Begin = func(context.Context, *leaderelection.Leadership) error {
			time.Sleep(time.Second)
			return errBoom
		}
	}, func(w *world) {
		w.leads()
		w.pass(time.Second)
		w.happened("1s end 1 lost")
		w.is(StateNotLeader)
	})
}

func TestBeginTimesOut(t *testing.T) {
	play(t, func(w *world) { w.e.Begin = w.untilDone("begin") }, func(w *world) {
		first := w.backend.now()
		w.leads()
		w.pass(time.Minute)
		w.happened("0s begin 1", "1m0s begin done: "+errBeginTimeout.Error(), "1m0s end 1", "1m0s error 1")
		require.ErrorIs(w, w.e.Current().Err, ErrBegin)
		require.False(w, first.holds())
	})
}

func TestBeginIsInterruptedByTheContext(t *testing.T) {
	play(t, func(w *world) { w.e.Begin = w.untilDone("begin") }, func(w *world) {
		w.leads()
		w.stop()
		require.NoError(w, w.returned())
		w.happened("0s begin 1", "0s begin done: context canceled", "0s end 1")
	})
}

// The defaults: 12 tries, 5 s apart, then Run returns.
func TestEndFailsForGood(t *testing.T) {
	play(t, func(w *world) {
		w.e.End = func(_ context.Context, l *leaderelection.Leadership) error {
			if l.Err() != nil {
				w.note("lost too early")
			}
			w.note("end")
			return errBoom
		}
		w.e.Work = func(context.Context, *leaderelection.Leadership) error { return errors.New("no work") }
	}, func(w *world) {
		w.leads()
		w.pass(55*time.Second - 1)
		w.runs()
		w.pass(1)
		err := w.returned()
		require.ErrorIs(w, err, ErrEnd)
		require.ErrorIs(w, err, ErrWork)
		require.ErrorIs(w, err, errBoom)
		require.ErrorContains(w, err, "may still run")
		require.False(w, w.backend.now().holds(), "another can lead")
		events := []string{"0s begin 1"}
		for i := range 12 {
			events = append(events, fmt.Sprintf("%v end", time.Duration(i)*5*time.Second))
		}
		w.happened(events...)
	})
}

func TestEndsRetriesAreSettable(t *testing.T) {
	play(t, func(w *world) {
		w.e.End, w.e.EndTries, w.e.EndPause = w.handler("end", errBoom, errBoom, errBoom), 2, time.Second
	}, func(w *world) {
		w.leads()
		w.stop() // does not shorten them
		w.pass(time.Second)
		require.ErrorIs(w, w.returned(), ErrEnd)
		w.happened("0s begin 1", "0s end 1", "1s end 1")
	})
}

func TestEachTryOfEndIsBounded(t *testing.T) {
	play(t, func(w *world) {
		tries := 0
		w.e.End = func(ctx context.Context, l *leaderelection.Leadership) error {
			if tries++; tries == 2 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}
	}, func(w *world) {
		w.leads()
		w.stop()
		w.pass(35*time.Second - 1)
		w.runs()
		w.pass(1)
		require.NoError(w, w.returned())
	})
}

func TestErrorWaitEndsWithTheContext(t *testing.T) {
	play(t, nil, func(w *world) {
		w.backend.now().fails(errBoom)
		w.is(StateError)
		w.stop()
		require.NoError(w, w.returned())
		w.is(StateNotLeader)
	})
}

func TestErrorHandlerIsBounded(t *testing.T) {
	play(t, func(w *world) {
		w.e.Error = func(ctx context.Context, _ *leaderelection.Leadership, _ error) error {
			<-ctx.Done()
			w.note("done")
			return nil
		}
	}, func(w *world) {
		w.backend.now().fails(errBoom)
		w.pass(30 * time.Second)
		w.happened("30s done")
		w.pass(30 * time.Second)
		w.is(StateNotLeader)
	})
}

func TestHandlersAreOptional(t *testing.T) {
	play(t, func(w *world) { w.e.Begin, w.e.End, w.e.Error = nil, nil, nil }, func(w *world) {
		w.leads()
		w.is(StateLeader)
		w.backend.now().follows()
		w.is(StateNotLeader)
		w.backend.now().fails(errBoom)
		w.is(StateError)
		w.pass(30 * time.Second)
		w.is(StateNotLeader)
	})
}

func TestARunOnlyOnce(t *testing.T) {
	play(t, nil, func(w *world) {
		require.ErrorIs(w, w.e.Run(w.Context()), ErrAlreadyRun)
		w.stop()
		require.NoError(w, w.returned())
		require.ErrorIs(w, w.e.Run(w.Context()), ErrAlreadyRun)
	})
}

func TestInvalidFields(t *testing.T) {
	b := &backend{}
	for _, e := range []*Elector{
		{},
		{NewCandidate: b.newCandidate, ErrorWait: -1},
		{NewCandidate: b.newCandidate, EndTries: -1},
		{NewCandidate: func(context.Context) (leaderelection.Candidate, error) { return nil, nil }},
	} {
		require.Equal(t, StateNotLeader, e.Current().State)
		require.ErrorIs(t, e.Run(t.Context()), leaderelection.ErrInvalidOption)
	}
	require.ErrorIs(t, Lead(t.Context(), nil, nil), leaderelection.ErrInvalidOption)
}

func TestUnconfirmedResignationIsReturned(t *testing.T) {
	play(t, nil, func(w *world) {
		w.backend.now().resign = leaderelection.ErrUnconfirmed
		w.stop()
		require.ErrorIs(w, w.returned(), leaderelection.ErrUnconfirmed)
	})
}

func TestCandidatesAreClosed(t *testing.T) {
	play(t, nil, func(w *world) {
		first := w.backend.now()
		first.fails(errBoom)
		w.is(StateError)
		require.Equal(w, 1, first.closed)
		w.pass(30 * time.Second)
		w.stop()
		require.NoError(w, w.returned())
		require.Equal(w, 1, w.backend.now().closed)
		require.Equal(w, 1, first.closed)
	})
}

func TestReport(t *testing.T) {
	play(t, func(w *world) { w.e.Begin = w.untilDone("begin") }, func(w *world) {
		began := w.e.Current().Since
		w.pass(time.Second)
		l := w.leads()
		r := w.e.Current()
		require.Equal(w, Report{StateNotLeader, began, w.backend.now().Current(), nil}, r)
		require.Same(w, l, r.Candidate.Leadership)
	})
}
