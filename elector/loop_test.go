package elector

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
)

// The following tests cover the state table in docs/elector.md. Their names begin with the event, and most
// of them end with the state in which the event occurs.

// TestLeaderEvent_CallsBeginInStateNotLeader checks that Begin is called when leadership begins, and End when
// Run returns.
func TestLeaderEvent_CallsBeginInStateNotLeader(t *testing.T) {
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

// TestLeaderEvent_ResignsIfBeginFails checks that the Elector does not call End after a failure of Begin, and
// does not keep the leadership.
func TestLeaderEvent_ResignsIfBeginFails(t *testing.T) {
	runElector(t, func(h *harness) { h.elector.Begin = h.handler("begin", errBoom) }, func(h *harness) {
		first := h.backend.newest()
		h.lead()
		h.requireEvents("0s begin 1", "0s error 1") // End is not called
		require.False(h, first.isActive(), "the candidate has not resigned")
		h.requireState(StateError)
		require.ErrorIs(h, h.elector.Current().Err, ErrBegin)
		require.ErrorIs(h, h.elector.Current().Err, errBoom)
		h.wait(30*time.Second - 1)
		require.Equal(h, 1, h.backend.countCandidates())
		h.wait(1)
		require.Equal(h, 2, h.backend.countCandidates())
		h.requireState(StateNotLeader)
		h.lead()
		h.requireEvents("0s begin 1", "0s error 1", "30s begin 2")
	})
}

// TestLeaderEvent_DoesNotBeginTwiceInStateLeader checks that a second status of the same leadership does not
// start a second term.
func TestLeaderEvent_DoesNotBeginTwiceInStateLeader(t *testing.T) {
	runElector(t, nil, func(h *harness) {
		l := h.lead()
		h.backend.newest().publish(leaderelection.Status{Role: leaderelection.Leader, Leadership: l})
		h.requireEvents("0s begin 1")
		h.requireState(StateLeader)
	})
}

// TestLeaderEvent_EndsPreviousTermInStateLeader checks that the Elector calls End for the previous leadership
// before it calls Begin for a new one, even if the backend has not reported the loss of the previous
// leadership.
func TestLeaderEvent_EndsPreviousTermInStateLeader(t *testing.T) {
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

// TestNotLeaderEvent_CallsNothingInStateNotLeader checks that the Elector calls no handler while the candidate
// is a follower or suspended.
func TestNotLeaderEvent_CallsNothingInStateNotLeader(t *testing.T) {
	runElector(t, nil, func(h *harness) {
		h.backend.newest().suspend()
		h.backend.newest().publish(leaderelection.Status{NowFollowing: "x"})
		h.requireEvents()
		h.requireState(StateNotLeader)
		h.lead()
		h.requireEvents("0s begin 1")
	})
}

// TestNotLeaderEvent_CallsEndInStateLeader checks that End is called after the loss of the leadership, and that
// the candidate does not resign.
func TestNotLeaderEvent_CallsEndInStateLeader(t *testing.T) {
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

// TestNotLeaderEvent_NeedsNoStatusInStateLeader checks that the Elector calls End as soon as Leadership.Done is
// closed, without waiting for a status.
func TestNotLeaderEvent_NeedsNoStatusInStateLeader(t *testing.T) {
	runElector(t, nil, func(h *harness) {
		h.lead()
		h.backend.newest().loseLeadership(leaderelection.ErrLeaseExpired)
		h.requireEvents("0s begin 1", "0s end 1 lost")
		h.requireState(StateNotLeader)
	})
}

// TestNotLeaderEvent_NeedsNoDoneInStateLeader checks that the Elector calls End after the status of a follower,
// without waiting for Leadership.Done.
func TestNotLeaderEvent_NeedsNoDoneInStateLeader(t *testing.T) {
	runElector(t, nil, func(h *harness) {
		h.lead()
		h.backend.newest().publish(leaderelection.Status{})
		h.requireEvents("0s begin 1", "0s end 1")
		h.requireState(StateNotLeader)
	})
}

// TestNotLeaderEvent_ResignsIfEndFails checks that a candidate that has lost the leadership resigns if End
// fails, because it could not begin if it were elected again.
func TestNotLeaderEvent_ResignsIfEndFails(t *testing.T) {
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
		require.Equal(h, 2, h.backend.countCandidates())
	})
}

// TestErrorEvent_CreatesCandidateInStateNotLeader checks that the Elector reports an error of a follower's
// candidate to the handler Error, and creates a new candidate after ErrorWait.
func TestErrorEvent_CreatesCandidateInStateNotLeader(t *testing.T) {
	runElector(t, nil, func(h *harness) {
		h.backend.newest().fail(leaderelection.ErrSessionExpired)
		h.requireEvents("0s error -")
		h.requireState(StateError)
		require.ErrorIs(h, h.elector.Current().Err, leaderelection.ErrSessionExpired)
		h.wait(30 * time.Second)
		h.requireState(StateNotLeader)
		require.NoError(h, h.elector.Current().Err)
		require.Equal(h, 2, h.backend.countCandidates())
	})
}

// TestErrorEvent_CallsEndInStateLeader checks that the Elector calls End, and then Error, if the backend ends
// the candidacy of a leader with an error.
func TestErrorEvent_CallsEndInStateLeader(t *testing.T) {
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

// TestErrorEvent_IsReportedIfEndFails checks that the reported error contains the error of the backend if End
// fails as well.
func TestErrorEvent_IsReportedIfEndFails(t *testing.T) {
	runElector(t, func(h *harness) { h.elector.End = h.handler("end", errBoom) }, func(h *harness) {
		h.lead()
		h.backend.newest().fail(leaderelection.ErrSessionExpired)
		h.wait(5 * time.Second)
		h.requireEvents("0s begin 1", "0s end 1 lost", "5s end 1 lost", "5s error 1")
		h.requireState(StateError)
		require.ErrorIs(h, h.elector.Current().Err, leaderelection.ErrSessionExpired)
	})
}

// TestErrorEvent_WaitsAgainInStateError checks that the Elector reports an error of NewCandidate after
// ErrorWait, and waits again.
func TestErrorEvent_WaitsAgainInStateError(t *testing.T) {
	runElector(t, func(h *harness) { h.backend.results = []error{errBoom, errBoom} }, func(h *harness) {
		h.requireEvents("0s error -")
		h.requireState(StateError)
		h.wait(30 * time.Second)
		h.requireEvents("0s error -", "30s error -")
		h.requireState(StateError)
		h.wait(30 * time.Second)
		h.requireState(StateNotLeader)
		require.Equal(h, 1, h.backend.countCandidates())
	})
}

// TestErrorEvent_RepeatsFailedHandlerInStateError checks that the Elector repeats a handler Error that has
// failed, and starts no candidacy before the handler has succeeded.
func TestErrorEvent_RepeatsFailedHandlerInStateError(t *testing.T) {
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

// TestTerminalError_EndsRun checks that Run calls End before it returns a terminal error.
func TestTerminalError_EndsRun(t *testing.T) {
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

// TestTerminal_ReplacesIsTerminal checks that an error ends Run if Elector.Terminal selects the error, and not
// if only IsTerminal would.
func TestTerminal_ReplacesIsTerminal(t *testing.T) {
	runElector(t, func(h *harness) { h.elector.Terminal = func(err error) bool { return errors.Is(err, errBoom) } }, func(h *harness) {
		h.backend.newest().fail(leaderelection.ErrElectionOver)
		h.wait(30 * time.Second)
		h.backend.newest().fail(errBoom)
		require.ErrorIs(h, h.requireReturned(), ErrTerminal)
		require.ErrorIs(h, h.err, errBoom)
	})
}

// TestElector_RejoinsAfterResignByOtherCode checks that a candidate that other code has resigned joins again
// after ErrorWait.
func TestElector_RejoinsAfterResignByOtherCode(t *testing.T) {
	runElector(t, nil, func(h *harness) {
		h.lead()
		require.NoError(h, h.backend.newest().Resign())
		h.requireEvents("0s begin 1", "0s end 1 lost", "0s error 1")
		require.ErrorIs(h, h.elector.Current().Err, ErrWithdrawn)
		h.wait(30 * time.Second)
		require.True(h, h.backend.newest().isActive())
	})
}

// TestElector_EndsAfterLeaderWithoutLeadership checks that a status with the role Leader and without a
// leadership, which violates the interface, ends Run with ErrTerminal.
func TestElector_EndsAfterLeaderWithoutLeadership(t *testing.T) {
	runElector(t, nil, func(h *harness) {
		h.backend.newest().publish(leaderelection.Status{Role: leaderelection.Leader})
		require.ErrorIs(h, h.requireReturned(), ErrTerminal)
		require.False(h, h.backend.newest().isActive())
	})
}

// TestElector_ReportsErrorWithoutFinalStatus checks that the Elector reports an error of ElectLeader that no
// final status has delivered before.
func TestElector_ReportsErrorWithoutFinalStatus(t *testing.T) {
	runElector(t, nil, func(h *harness) {
		c := h.backend.newest()
		c.result <- errBoom
		h.requireEvents("0s error -")
		require.ErrorIs(h, h.elector.Current().Err, errBoom)
	})
}
