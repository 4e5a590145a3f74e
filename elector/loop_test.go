package elector

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
)

// The tests of the state table in docs/elector.md are named after an event and the state in which it occurs.

// TestLeaderInNotLeader fails if Begin is not called, or End when Run returns.
func TestLeaderInNotLeader(t *testing.T) {
	runElector(t, nil, func(h *harness) {
		h.requireState(StateNotLeader)
		h.lead()
		h.requireEvents("0s begin 1")
		h.requireState(StateLeader)
		h.stop()
		require.NoError(h, h.requireReturned())
		h.requireEvents("0s begin 1", "0s end 1")
		h.requireState(StateNotLeader)
	})
}

// TestLeaderInNotLeader_BeginFails fails if End is called, or if the leadership is kept.
func TestLeaderInNotLeader_BeginFails(t *testing.T) {
	runElector(t, func(h *harness) { h.elector.Begin = h.handler("begin", errBoom) }, func(h *harness) {
		first := h.backend.newest()
		h.lead()
		h.requireEvents("0s begin 1", "0s error 1") // End is not called
		require.False(h, first.isActive(), "the candidate has not resigned")
		h.requireState(StateError)
		require.ErrorIs(h, h.elector.Current().Err, ErrBegin)
		require.ErrorIs(h, h.elector.Current().Err, errBoom)
		h.wait(30*time.Second - 1)
		require.Equal(h, 1, h.backend.count())
		h.wait(1)
		require.Equal(h, 2, h.backend.count())
		h.requireState(StateNotLeader)
		h.lead()
		h.requireEvents("0s begin 1", "0s error 1", "30s begin 2")
	})
}

// TestLeaderInLeader fails if a repeated status starts a second term.
func TestLeaderInLeader(t *testing.T) {
	runElector(t, nil, func(h *harness) {
		l := h.lead()
		h.backend.newest().publish(leaderelection.Status{Role: leaderelection.Leader, Leadership: l})
		h.requireEvents("0s begin 1")
		h.requireState(StateLeader)
	})
}

// TestLeaderInLeader_NewLeadership fails if the previous term does not end before the next one begins. The
// backend has not reported the loss.
func TestLeaderInLeader_NewLeadership(t *testing.T) {
	runElector(t, func(h *harness) { h.elector.End = h.handler("end", nil, errBoom) }, func(h *harness) {
		h.lead()
		h.backend.newest().lead()
		h.requireEvents("0s begin 1", "0s end 1", "0s begin 2")
		h.requireState(StateLeader)
		h.lead() // End of the second term fails once
		h.wait(5 * time.Second)
		h.requireEvents("0s begin 1", "0s end 1", "0s begin 2", "0s end 2", "5s end 2", "5s error 2")
		h.requireState(StateError)
	})
}

// TestNotLeaderInNotLeader fails if a follower calls a handler.
func TestNotLeaderInNotLeader(t *testing.T) {
	runElector(t, nil, func(h *harness) {
		h.backend.newest().suspend()
		h.backend.newest().publish(leaderelection.Status{NowFollowing: "x"})
		h.requireEvents()
		h.requireState(StateNotLeader)
		h.lead()
		h.requireEvents("0s begin 1")
	})
}

// TestNotLeaderInLeader fails if End is not called, or if the candidate resigns after a loss.
func TestNotLeaderInLeader(t *testing.T) {
	runElector(t, nil, func(h *harness) {
		h.lead()
		h.backend.newest().suspend()
		h.requireEvents("0s begin 1", "0s end 1 lost")
		h.requireState(StateNotLeader)
		require.True(h, h.backend.newest().isActive(), "the candidacy continues")
		h.lead()
		h.requireEvents("0s begin 1", "0s end 1 lost", "0s begin 2")
		h.requireState(StateLeader)
	})
}

// TestNotLeaderInLeader_WithoutStatus fails if the Elector waits for a status after Leadership.Done.
func TestNotLeaderInLeader_WithoutStatus(t *testing.T) {
	runElector(t, nil, func(h *harness) {
		h.lead()
		h.backend.newest().loseLeadership(leaderelection.ErrLeaseExpired)
		h.requireEvents("0s begin 1", "0s end 1 lost")
		h.requireState(StateNotLeader)
	})
}

// TestNotLeaderInLeader_StatusOnly fails if the Elector waits for Leadership.Done after a status.
func TestNotLeaderInLeader_StatusOnly(t *testing.T) {
	runElector(t, nil, func(h *harness) {
		h.lead()
		h.backend.newest().publish(leaderelection.Status{})
		h.requireEvents("0s begin 1", "0s end 1")
		h.requireState(StateNotLeader)
	})
}

// TestNotLeaderInLeader_EndFails fails if the candidate can be elected again while End fails.
func TestNotLeaderInLeader_EndFails(t *testing.T) {
	runElector(t, func(h *harness) { h.elector.End = h.handler("end", errBoom, errBoom) }, func(h *harness) {
		first := h.backend.newest()
		h.lead()
		first.suspend()
		h.requireEvents("0s begin 1", "0s end 1 lost")
		require.False(h, first.isActive(), "it could be elected and cannot begin")
		h.requireState(StateLeader)
		h.wait(10 * time.Second)
		h.requireEvents("0s begin 1", "0s end 1 lost", "5s end 1 lost", "10s end 1 lost", "10s error 1")
		h.requireState(StateError)
		h.wait(30 * time.Second)
		h.requireState(StateNotLeader)
		require.Equal(h, 2, h.backend.count())
	})
}

// TestErrorInNotLeader fails if an error is not reported, or if no new candidate is created.
func TestErrorInNotLeader(t *testing.T) {
	runElector(t, nil, func(h *harness) {
		h.backend.newest().fail(leaderelection.ErrSessionExpired)
		h.requireEvents("0s error -")
		h.requireState(StateError)
		require.ErrorIs(h, h.elector.Current().Err, leaderelection.ErrSessionExpired)
		h.wait(30 * time.Second)
		h.requireState(StateNotLeader)
		require.NoError(h, h.elector.Current().Err)
		require.Equal(h, 2, h.backend.count())
	})
}

// TestErrorInLeader fails if End is not called before Error.
func TestErrorInLeader(t *testing.T) {
	runElector(t, nil, func(h *harness) {
		h.lead()
		h.backend.newest().fail(leaderelection.ErrSessionExpired)
		h.requireEvents("0s begin 1", "0s end 1 lost", "0s error 1")
		h.requireState(StateError)
		h.wait(30 * time.Second)
		h.requireState(StateNotLeader)
		h.lead()
		h.requireEvents("0s begin 1", "0s end 1 lost", "0s error 1", "30s begin 2")
	})
}

// TestErrorInLeader_EndFails fails if the error of the backend is lost.
func TestErrorInLeader_EndFails(t *testing.T) {
	runElector(t, func(h *harness) { h.elector.End = h.handler("end", errBoom) }, func(h *harness) {
		h.lead()
		h.backend.newest().fail(leaderelection.ErrSessionExpired)
		h.wait(5 * time.Second)
		h.requireEvents("0s begin 1", "0s end 1 lost", "5s end 1 lost", "5s error 1")
		h.requireState(StateError)
		require.ErrorIs(h, h.elector.Current().Err, leaderelection.ErrSessionExpired)
	})
}

// TestErrorInError fails if an error of NewCandidate after ErrorWait is not handled like the first one.
func TestErrorInError(t *testing.T) {
	runElector(t, func(h *harness) { h.backend.results = []error{errBoom, errBoom} }, func(h *harness) {
		h.requireEvents("0s error -")
		h.requireState(StateError)
		h.wait(30 * time.Second)
		h.requireEvents("0s error -", "30s error -")
		h.requireState(StateError)
		h.wait(30 * time.Second)
		h.requireState(StateNotLeader)
		require.Equal(h, 1, h.backend.count())
	})
}

// TestErrorInError_HandlerFails fails if a candidacy starts although the error handler has failed.
func TestErrorInError_HandlerFails(t *testing.T) {
	runElector(t, func(h *harness) {
		failures := []error{errBoom, errBoom}
		h.elector.Error = func(_ context.Context, _ *leaderelection.Leadership, err error) error {
			h.record("error: %v", err)
			if len(failures) == 0 {
				return nil
			}
			defer func() { failures = failures[1:] }()
			return failures[0]
		}
		h.backend.results = []error{errors.New("first")}
	}, func(h *harness) {
		h.wait(90*time.Second - 1)
		h.requireEvents("0s error: first", "30s error: first", "1m0s error: first")
		h.requireState(StateError)
		h.wait(1)
		h.requireState(StateNotLeader)
	})
}

// TestTerminalError fails if Run does not return a terminal error, or does not call End before.
func TestTerminalError(t *testing.T) {
	for _, err := range terminal {
		runElector(t, func(h *harness) { h.backend.results = []error{err} }, func(h *harness) {
			require.ErrorIs(h, h.requireReturned(), ErrTerminal)
			require.ErrorIs(h, h.err, err)
			h.requireEvents()
		})
		runElector(t, nil, func(h *harness) {
			h.backend.newest().fail(err)
			require.ErrorIs(h, h.requireReturned(), ErrTerminal)
			require.ErrorIs(h, h.err, err)
			require.Equal(h, h.err, h.elector.Current().Err)
			h.requireEvents()
		})
		runElector(t, nil, func(h *harness) {
			h.lead()
			h.backend.newest().fail(err)
			require.ErrorIs(h, h.requireReturned(), err)
			h.requireEvents("0s begin 1", "0s end 1 lost")
		})
	}
}

// TestTerminalError_CustomFunction fails if Elector.Terminal is not used.
func TestTerminalError_CustomFunction(t *testing.T) {
	runElector(t, func(h *harness) { h.elector.Terminal = func(err error) bool { return errors.Is(err, errBoom) } }, func(h *harness) {
		h.backend.newest().fail(leaderelection.ErrElectionOver)
		h.wait(30 * time.Second)
		h.backend.newest().fail(errBoom)
		require.ErrorIs(h, h.requireReturned(), ErrTerminal)
		require.ErrorIs(h, h.err, errBoom)
	})
}

// TestResignedByOtherCode fails if a candidate that other code has resigned joins again without ErrorWait.
func TestResignedByOtherCode(t *testing.T) {
	runElector(t, nil, func(h *harness) {
		h.lead()
		require.NoError(h, h.backend.newest().Resign())
		h.requireEvents("0s begin 1", "0s end 1 lost", "0s error 1")
		require.ErrorIs(h, h.elector.Current().Err, ErrWithdrawn)
		h.wait(30 * time.Second)
		require.True(h, h.backend.newest().isActive())
	})
}

// TestLeaderWithoutLeadership fails if a status that violates the interface is not a terminal error.
func TestLeaderWithoutLeadership(t *testing.T) {
	runElector(t, nil, func(h *harness) {
		h.backend.newest().publish(leaderelection.Status{Role: leaderelection.Leader})
		require.ErrorIs(h, h.requireReturned(), ErrTerminal)
		require.False(h, h.backend.newest().isActive())
	})
}

// TestElectLeaderReturnsWithoutStatus fails if an error of ElectLeader without a final status is ignored.
func TestElectLeaderReturnsWithoutStatus(t *testing.T) {
	runElector(t, nil, func(h *harness) {
		c := h.backend.newest()
		c.result <- errBoom
		h.requireEvents("0s error -")
		require.ErrorIs(h, h.elector.Current().Err, errBoom)
	})
}
