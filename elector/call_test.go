package elector

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
)

func exit() { runtime.Goexit() }

// logged is the elector's log.
type logged struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (w *world) logged() *logged {
	l := &logged{}
	w.e.Log = slog.New(slog.NewTextHandler(l, nil))
	return l
}

func TestHangingBeginIsReportedAndAbandoned(t *testing.T) {
	var log *logged
	play(t, func(w *world) { w.e.Begin, log = w.hanging("begin"), w.logged() }, func(w *world) {
		w.leads()
		w.pass(time.Second)
		w.backend.now().follows()
		w.pass(time.Second - 1)
		require.NotContains(w, log.String(), "still running")
		w.pass(1)
		require.Contains(w, log.String(), "still running")
		w.pass(9*time.Second - 1)
		w.runs()
		w.pass(1)
		require.ErrorIs(w, w.returned(), ErrHung)
		require.ErrorIs(w, w.err, ErrBegin)
		w.happened("0s begin 1", "11s end 1 lost")
		require.False(w, w.backend.now().holds())
		require.Equal(w, 1, strings.Count(log.String(), "abandoned"))
	})
}

func TestHangingBeginAfterItsTimeout(t *testing.T) {
	play(t, func(w *world) { w.e.Begin = w.hanging("begin") }, func(w *world) {
		w.leads()
		w.pass(70 * time.Second)
		require.ErrorIs(w, w.returned(), ErrHung)
		w.happened("0s begin 1", "1m10s end 1")
		require.False(w, w.backend.now().holds())
	})
}

func TestHangingWork(t *testing.T) {
	play(t, func(w *world) { w.e.Work, w.e.Grace = w.hanging("work"), time.Second }, func(w *world) {
		w.leads()
		w.stop()
		w.pass(time.Second)
		require.ErrorIs(w, w.returned(), ErrHung)
		require.ErrorIs(w, w.err, ErrWork)
		w.happened("0s begin 1", "0s work 1", "1s end 1")
		require.False(w, w.backend.now().holds())
	})
}

// It is not elected once more while End takes its time.
func TestHangingWorkAfterALoss(t *testing.T) {
	play(t, func(w *world) {
		w.e.Work = w.hanging("work")
		w.e.End = func(ctx context.Context, _ *leaderelection.Leadership) error {
			if w.backend.now().holds() {
				w.note("still in line")
			}
			return nil
		}
	}, func(w *world) {
		w.leads()
		w.backend.now().follows()
		w.pass(10 * time.Second)
		require.ErrorIs(w, w.returned(), ErrHung)
		w.happened("0s begin 1", "0s work 1")
	})
}

func TestHangingEnd(t *testing.T) {
	play(t, func(w *world) { w.e.End = w.hanging("end") }, func(w *world) {
		w.leads()
		w.stop()
		w.pass(40 * time.Second)
		require.ErrorIs(w, w.returned(), ErrHung)
		require.ErrorIs(w, w.err, ErrEnd)
		w.happened("0s begin 1", "0s end 1") // not called beside itself
		require.False(w, w.backend.now().holds())
	})
}

func TestHangingErrorHandler(t *testing.T) {
	play(t, func(w *world) {
		hang := w.hanging("error")
		w.e.Error = func(ctx context.Context, l *leaderelection.Leadership, _ error) error { return hang(ctx, l) }
		w.e.Begin = w.handler("begin", errBoom)
	}, func(w *world) {
		w.leads()
		w.pass(40 * time.Second)
		require.ErrorIs(w, w.returned(), ErrHung)
		w.happened("0s begin 1", "0s error 1")
	})
}

// What it makes in the end takes part in nothing.
func TestHangingNewCandidate(t *testing.T) {
	over := make(chan struct{})
	play(t, func(w *world) {
		over = make(chan struct{})
		w.e.NewCandidate = func(ctx context.Context) (leaderelection.Candidate, error) {
			<-over
			return w.backend.newCandidate(ctx)
		}
	}, func(w *world) {
		w.pass(time.Hour)
		w.runs()
		w.stop()
		w.pass(10 * time.Second)
		require.ErrorIs(w, w.returned(), ErrHung)
		close(over)
		w.happened()
		require.False(w, w.backend.now().holds())
		require.Equal(w, 1, w.backend.now().closed)
	})
}

// One that heeds its context ends at once.
func TestNewCandidateIsInterrupted(t *testing.T) {
	play(t, func(w *world) {
		w.e.NewCandidate = func(ctx context.Context) (leaderelection.Candidate, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
	}, func(w *world) {
		w.stop()
		require.NoError(w, w.returned())
	})
}

func TestBackendThatDoesNotResign(t *testing.T) {
	play(t, nil, func(w *world) {
		c := w.backend.now()
		c.stuck = make(chan struct{})
		defer close(c.stuck)
		w.leads()
		w.stop()
		w.pass(10*time.Second - 1)
		w.runs()
		w.pass(1)
		require.ErrorIs(w, w.returned(), leaderelection.ErrUnconfirmed)
		w.happened("0s begin 1", "0s end 1")
	})
}
