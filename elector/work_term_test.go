package elector

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
)

func TestWorkRunsBetweenBeginAndEnd(t *testing.T) {
	play(t, func(w *world) { w.e.Work = w.untilDone("work") }, func(w *world) {
		w.leads()
		w.happened("0s begin 1", "0s work 1")
		w.pass(time.Second)
		w.stop()
		require.NoError(w, w.returned())
		w.happened("0s begin 1", "0s work 1", "1s work done: context canceled", "1s end 1")
	})
}

func TestLossInterruptsWork(t *testing.T) {
	play(t, func(w *world) { w.e.Work = w.untilDone("work") }, func(w *world) {
		w.leads()
		w.backend.now().follows()
		w.leads()
		w.happened(
			"0s begin 1", "0s work 1", "0s work done: lease expired: it was not confirmed in time", "0s end 1 lost",
			"0s begin 2", "0s work 2")
	})
}

func TestFailingWorkGivesLeadershipUp(t *testing.T) {
	play(t, func(w *world) { w.e.Work = w.handler("work", errBoom) }, func(w *world) {
		first := w.backend.now()
		w.leads()
		w.happened("0s begin 1", "0s work 1", "0s end 1", "0s error 1")
		require.ErrorIs(w, w.e.Current().Err, ErrWork)
		require.ErrorIs(w, w.e.Current().Err, errBoom)
		require.False(w, first.holds())
	})
}

func TestDoneWorkEndsRun(t *testing.T) {
	play(t, func(w *world) { w.e.Work = w.handler("work") }, func(w *world) {
		w.leads()
		require.NoError(w, w.returned())
		w.happened("0s begin 1", "0s work 1", "0s end 1")
		require.False(w, w.backend.now().holds())
	})
}

// What returns after the loss was not done by a leader.
func TestWorkDoneAfterTheLossIsNotDone(t *testing.T) {
	play(t, func(w *world) {
		w.e.Work = func(ctx context.Context, l *leaderelection.Leadership) error {
			<-ctx.Done()
			return nil
		}
	}, func(w *world) {
		w.leads()
		w.backend.now().follows()
		w.runs()
		w.leads()
		w.is(StateLeader)
		require.Equal(w, int64(2), w.e.Current().Candidate.Leadership.Token())
	})
}

// A process that was stopped may go on before anything tells it of the loss.
func TestWorkDoneAfterTheLeaseIsNotDone(t *testing.T) {
	play(t, func(w *world) {
		w.backend.lease = time.Second
		w.e.Work = func(ctx context.Context, l *leaderelection.Leadership) error {
			time.Sleep(time.Second)
			return nil
		}
	}, func(w *world) {
		w.leads()
		w.pass(time.Second)
		w.runs()
		w.happened("0s begin 1", "1s end 1 lost")
	})
}

func TestWorksErrorWhileHandingOverIsReturned(t *testing.T) {
	play(t, func(w *world) {
		w.e.Work = func(ctx context.Context, l *leaderelection.Leadership) error {
			<-ctx.Done()
			return errBoom
		}
	}, func(w *world) {
		w.leads()
		w.stop()
		require.ErrorIs(w, w.returned(), ErrWork)
		require.ErrorIs(w, w.err, errBoom)
		w.happened("0s begin 1", "0s end 1")
	})
}

// The goroutine of a handler ends without a return, as by t.FailNow.
func TestWorkThatEndsItsGoroutineHasFailed(t *testing.T) {
	play(t, func(w *world) {
		w.e.Work = func(context.Context, *leaderelection.Leadership) error { exit(); return nil }
	}, func(w *world) {
		w.leads()
		w.happened("0s begin 1", "0s end 1", "0s error 1")
		require.ErrorIs(w, w.e.Current().Err, errExited)
	})
}

// An error that looks like one of the Elector's own, of one inside of it for instance.
func TestHandlersMayReturnErrorsOfElectors(t *testing.T) {
	play(t, func(w *world) {
		w.e.Begin = w.handler("begin", ErrHung)
		w.e.Work = w.handler("work", ErrHung)
		w.e.End = w.handler("end", ErrHung)
	}, func(w *world) {
		w.leads()
		w.is(StateError)
		w.pass(30 * time.Second)
		w.leads()
		w.pass(5 * time.Second)
		w.happened("0s begin 1", "0s error 1", "30s begin 2", "30s work 2", "30s end 2", "35s end 2", "35s error 2")
		w.runs()
	})
}
