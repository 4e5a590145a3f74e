package elector

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// TestRun_AbandonsHangingBegin checks that Run logs and abandons a Begin that ignores its context, calls End
// and returns ErrHung.
func TestRun_AbandonsHangingBegin(t *testing.T) {
	var log *testenv.Buffer
	runElector(t, func(h *harness) { h.elector.Begin, log = h.newHangingHandler("begin"), h.captureLog() }, func(h *harness) {
		h.lead()
		h.wait(time.Second)
		h.backend.newest().suspend()
		h.wait(time.Second - 1)
		require.NotContains(h, log.String(), "still running")
		h.wait(1)
		require.Contains(h, log.String(), "still running")
		h.wait(9*time.Second - 1)
		h.requireRunning()
		h.wait(1)
		require.ErrorIs(h, h.requireReturned(), ErrHung)
		require.ErrorIs(h, h.err, ErrBegin)
		h.requireEvents("0s begin 1", "11s end 1 lost")
		require.False(h, h.backend.newest().isActive())
		require.Equal(h, 1, strings.Count(log.String(), "abandoned"))
	})
}

// TestRun_AbandonsBeginThatIgnoresTimeout checks that Run abandons a Begin that does not return after
// BeginTimeout.
func TestRun_AbandonsBeginThatIgnoresTimeout(t *testing.T) {
	runElector(t, func(h *harness) { h.elector.Begin = h.newHangingHandler("begin") }, func(h *harness) {
		h.lead()
		h.wait(70 * time.Second)
		require.ErrorIs(h, h.requireReturned(), ErrHung)
		h.requireEvents("0s begin 1", "1m10s end 1")
		require.False(h, h.backend.newest().isActive())
	})
}

// TestRun_AbandonsHangingWork checks that Run waits no longer than Grace for a Work that ignores its context.
func TestRun_AbandonsHangingWork(t *testing.T) {
	runElector(t, func(h *harness) { h.elector.Work, h.elector.Grace = h.newHangingHandler("work"), time.Second }, func(h *harness) {
		h.lead()
		h.stop()
		h.wait(time.Second)
		require.ErrorIs(h, h.requireReturned(), ErrHung)
		require.ErrorIs(h, h.err, ErrWork)
		h.requireEvents("0s begin 1", "0s work 1", "1s end 1")
		require.False(h, h.backend.newest().isActive())
	})
}

// TestRun_ResignsIfWorkHangsAfterLoss checks that Run resigns a candidate whose Work hangs after the loss of
// the leadership before it calls End. Otherwise the candidate could be elected again while End runs.
func TestRun_ResignsIfWorkHangsAfterLoss(t *testing.T) {
	runElector(t, func(h *harness) {
		h.elector.Work = h.newHangingHandler("work")
		h.elector.End = func(ctx context.Context, _ *leaderelection.Leadership) error {
			if h.backend.newest().isActive() {
				h.record("still queued")
			}
			return nil
		}
	}, func(h *harness) {
		h.lead()
		h.backend.newest().suspend()
		h.wait(10 * time.Second)
		require.ErrorIs(h, h.requireReturned(), ErrHung)
		h.requireEvents("0s begin 1", "0s work 1")
	})
}

// TestRun_AbandonsHangingEnd checks that Run waits no longer than EndTimeout and Grace for an End that hangs,
// and does not call End again.
func TestRun_AbandonsHangingEnd(t *testing.T) {
	runElector(t, func(h *harness) { h.elector.End = h.newHangingHandler("end") }, func(h *harness) {
		h.lead()
		h.stop()
		h.wait(40 * time.Second)
		require.ErrorIs(h, h.requireReturned(), ErrHung)
		require.ErrorIs(h, h.err, ErrEnd)
		h.requireEvents("0s begin 1", "0s end 1") // End is not called a second time
		require.False(h, h.backend.newest().isActive())
	})
}

// TestRun_AbandonsHangingErrorHandler checks that Run waits no longer than ErrorTimeout and Grace for an Error
// handler that ignores its context.
func TestRun_AbandonsHangingErrorHandler(t *testing.T) {
	runElector(t, func(h *harness) {
		hang := h.newHangingHandler("error")
		h.elector.Error = func(ctx context.Context, l *leaderelection.Leadership, _ error) error { return hang(ctx, l) }
		h.elector.Begin = h.handler("begin", errBoom)
	}, func(h *harness) {
		h.lead()
		h.wait(40 * time.Second)
		require.ErrorIs(h, h.requireReturned(), ErrHung)
		h.requireEvents("0s begin 1", "0s error 1")
	})
}

// TestRun_LogsNoErrorDuringGrace checks that Run logs an error about a handler that still runs only when Grace
// is over.
func TestRun_LogsNoErrorDuringGrace(t *testing.T) {
	var log *testenv.Buffer
	runElector(t, func(h *harness) { h.elector.Work, log = h.newHangingHandler("work"), h.captureLog() }, func(h *harness) {
		h.lead()
		h.stop()
		h.wait(10*time.Second - 1)
		require.Contains(h, log.String(), "still running")
		require.NotContains(h, log.String(), "level=ERROR")
		h.wait(1)
		require.Contains(h, log.String(), "level=ERROR")
		require.ErrorIs(h, h.requireReturned(), ErrHung)
	})
}
