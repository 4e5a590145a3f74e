package elector

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// The following three tests reproduce defects of an earlier implementation that the tests of the state
// table do not cover.

// TestElector_IgnoresEventsOfEarlierCandidacy checks that the Elector does not handle events of an earlier
// candidacy after ErrorWait.
func TestElector_IgnoresEventsOfEarlierCandidacy(t *testing.T) {
	runElector(t, func(h *harness) { h.elector.Begin = h.handler("begin", errBoom) }, func(h *harness) {
		first := h.backend.newest()
		h.lead()
		h.requireState(StateError)
		first.lead()
		first.publish(leaderelection.Status{})
		first.lead()
		h.wait(time.Minute)
		h.requireEvents("0s begin 1", "0s error 1")
		h.requireState(StateNotLeader)
	})
}

// TestElector_DoesNotBeginEndedLeadership checks that the Elector does not call Begin for a leadership that has
// begun and ended while another handler was running.
func TestElector_DoesNotBeginEndedLeadership(t *testing.T) {
	runElector(t, func(h *harness) {
		h.elector.End = delayHandler(10*time.Second, h.handler("end"))
	}, func(h *harness) {
		h.lead()
		c := h.backend.newest()
		c.suspend()
		c.lead()
		c.loseLeadership(leaderelection.ErrLeaseExpired)
		h.wait(time.Minute)
		h.requireEvents("0s begin 1", "10s end 1 lost")
		h.lead()
		h.requireEvents("0s begin 1", "10s end 1 lost", "1m0s begin 3")
	})
}

// TestElector_SeparatesCandidatesWithoutNames checks that two candidates without names have different IDs, and
// are not leaders at the same time.
func TestElector_SeparatesCandidatesWithoutNames(t *testing.T) {
	runOnZooKeeper(t, func(h *journal, srv *zktest.Server) {
		a := join(h, srv, "a", nil, leaderelection.WithName(""))
		b := join(h, srv, "b", nil, leaderelection.WithName(""))
		h.requireEvents("a begins")
		require.NotEqual(t, a.elector.Current().Candidate.CandidateID, b.elector.Current().Candidate.CandidateID)
		require.NotEmpty(t, b.elector.Current().Candidate.NowFollowing)
	})
}

// TestRun_RejectsSecondCall checks that a second call of Run returns ErrAlreadyStarted, during the first call
// and after it.
func TestRun_RejectsSecondCall(t *testing.T) {
	runElector(t, nil, func(h *harness) {
		require.ErrorIs(h, h.elector.Run(h.Context()), leaderelection.ErrAlreadyStarted)
		h.stop()
		require.NoError(h, h.requireReturned())
		require.ErrorIs(h, h.elector.Run(h.Context()), leaderelection.ErrAlreadyStarted)
	})
}

// TestRun_RejectsInvalidFields checks that Run and Lead return ErrInvalid for invalid fields and arguments.
func TestRun_RejectsInvalidFields(t *testing.T) {
	b := &scriptedBackend{}
	for _, e := range []*Elector{
		{},
		{NewCandidate: b.newCandidate, ErrorWait: -1},
		{NewCandidate: b.newCandidate, EndTries: -1},
		{NewCandidate: func(context.Context) (leaderelection.Candidate, error) { return nil, nil }},
	} {
		require.Equal(t, StateNotLeader, e.Current().State)
		require.ErrorIs(t, e.Run(t.Context()), leaderelection.ErrInvalid)
	}
	require.ErrorIs(t, Lead(t.Context(), nil, nil), leaderelection.ErrInvalid)
}

// TestPing_SucceedsWhereverLoopWaits checks that the loop of Run answers Ping in each place where it waits.
func TestPing_SucceedsWhereverLoopWaits(t *testing.T) {
	block := make(chan struct{})
	hang := func(context.Context, *leaderelection.Leadership) error { <-block; return nil }
	requirePing := func(h *harness) {
		h.Helper()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(h.Context(), time.Nanosecond)
		defer cancel()
		require.NoError(h, h.elector.Ping(ctx))
	}
	runElector(t, func(h *harness) {
		block = make(chan struct{})
		h.elector.Begin, h.elector.Work, h.elector.Grace = hang, hang, time.Hour
		h.elector.End = h.handler("end", errBoom)
		h.elector.EndPause = time.Hour
		require.ErrorIs(h, h.elector.Ping(h.Context()), ErrNotRunning)
	}, func(h *harness) {
		requirePing(h) // the loop waits as a follower
		h.lead()
		requirePing(h) // the loop waits for Begin
		h.wait(time.Minute)
		requirePing(h) // the loop waits for Begin after BeginTimeout
		block <- struct{}{}
		h.requireEvents("1m0s end 1")
		requirePing(h) // the loop waits between two calls of End
		h.wait(time.Hour)
		h.requireState(StateError)
		requirePing(h) // the loop waits for ErrorWait
		h.wait(30 * time.Second)
		h.lead()
		block <- struct{}{}
		h.requireState(StateLeader)
		requirePing(h) // the loop waits for Work
		c := h.backend.newest()
		c.blocked = make(chan struct{})
		h.stop()
		requirePing(h) // the loop waits for Work after its context is done
		close(block)
		h.requireRunning()
		requirePing(h) // the loop waits for Resign of the backend
		close(c.blocked)
		require.NoError(h, h.requireReturned())
		require.ErrorIs(h, h.elector.Ping(h.Context()), ErrNotRunning)
	})
}

// TestPing_FailsIfLoopIsStuck checks that Ping returns an error if the loop of Run is stuck. Here the logger
// blocks the loop.
func TestPing_FailsIfLoopIsStuck(t *testing.T) {
	var log *blockingLog
	runElector(t, func(h *harness) {
		log = &blockingLog{proceed: make(chan struct{})}
		h.elector.Logger = slog.New(slog.NewTextHandler(log, nil))
	}, func(h *harness) {
		h.lead()
		ctx, cancel := context.WithTimeout(h.Context(), time.Second)
		defer cancel()
		require.ErrorIs(h, h.elector.Ping(ctx), context.DeadlineExceeded)
		close(log.proceed)
		synctest.Wait()
		require.NoError(h, h.elector.Ping(h.Context()))
	})
}

// blockingLog blocks the write of the message that a leadership begins.
type blockingLog struct{ proceed chan struct{} }

func (l *blockingLog) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "msg=\"became leader\"") {
		<-l.proceed
	}
	return len(p), nil
}
