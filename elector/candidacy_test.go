package elector

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
)

// TestRun_ReportsUnconfirmedResignation checks that Run returns ErrUnconfirmed if the backend does not confirm
// the resignation.
func TestRun_ReportsUnconfirmedResignation(t *testing.T) {
	runElector(t, nil, func(h *harness) {
		h.backend.newest().resignErr = leaderelection.ErrUnconfirmed
		h.stop()
		require.ErrorIs(h, h.requireReturned(), leaderelection.ErrUnconfirmed)
	})
}

// TestRun_ClosesCandidateOnceAfterResigning checks that Run closes each candidate exactly once, after the
// candidate has resigned.
func TestRun_ClosesCandidateOnceAfterResigning(t *testing.T) {
	runElector(t, nil, func(h *harness) {
		first := h.backend.newest()
		first.fail(errBoom)
		h.requireState(StateError)
		require.Equal(h, 1, first.closed)
		h.wait(30 * time.Second)
		h.stop()
		require.NoError(h, h.requireReturned())
		require.Equal(h, 1, h.backend.newest().closed)
		require.Equal(h, 1, first.closed)
	})
}

// TestRun_ClosesCandidateOfAbandonedNewCandidate checks that a candidate that NewCandidate returns after Run
// has abandoned the call does not join the election, and is closed.
func TestRun_ClosesCandidateOfAbandonedNewCandidate(t *testing.T) {
	over := make(chan struct{})
	runElector(t, func(h *harness) {
		over = make(chan struct{})
		h.elector.NewCandidate = func(ctx context.Context) (leaderelection.Candidate, error) {
			<-over
			return h.backend.newCandidate(ctx)
		}
	}, func(h *harness) {
		h.wait(time.Hour)
		h.requireRunning()
		h.stop()
		h.wait(10 * time.Second)
		require.ErrorIs(h, h.requireReturned(), ErrHung)
		close(over)
		h.requireEvents()
		require.False(h, h.backend.newest().isActive())
		require.Equal(h, 1, h.backend.newest().closed)
	})
}

// TestRun_InterruptsNewCandidate checks that the context of NewCandidate is done when the context of Run is
// done.
func TestRun_InterruptsNewCandidate(t *testing.T) {
	runElector(t, func(h *harness) {
		h.elector.NewCandidate = func(ctx context.Context) (leaderelection.Candidate, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
	}, func(h *harness) {
		h.stop()
		require.NoError(h, h.requireReturned())
	})
}

// TestRun_ReturnsIfResignHangs checks that Run waits no longer than ten seconds for a Resign that does not
// return.
func TestRun_ReturnsIfResignHangs(t *testing.T) {
	runElector(t, nil, func(h *harness) {
		c := h.backend.newest()
		c.blocked = make(chan struct{})
		defer close(c.blocked)
		h.lead()
		h.stop()
		h.wait(10*time.Second - 1)
		h.requireRunning()
		h.wait(1)
		require.ErrorIs(h, h.requireReturned(), leaderelection.ErrUnconfirmed)
		h.requireEvents("0s begin 1", "0s end 1")
	})
}
