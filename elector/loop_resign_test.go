package elector

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/resign"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestResignRequested_CallsEndBeforeResigning checks that a leader that is requested to resign calls End before
// it releases the leadership, and that its next candidacy starts immediately.
func TestResignRequested_CallsEndBeforeResigning(t *testing.T) {
	runElector(t, func(h *harness) {
		h.elector.End = delayHandler(time.Second, h.handler("end"))
		h.elector.Work = func(ctx context.Context, l *leaderelection.Leadership) error {
			<-ctx.Done()
			h.record("work ends %d", l.Token())
			return nil // Work returns because of the request, although its work is not complete
		}
	}, func(h *harness) {
		first := h.backend.newest()
		h.lead()
		close(first.requests)
		h.requireState(StateLeader)
		require.True(h, first.isActive(), "resigned before End")
		h.wait(time.Second)
		require.False(h, first.isActive())
		h.requireEvents("0s begin 1", "0s work ends 1", "1s end 1")
		h.requireState(StateNotLeader)
		require.Equal(h, 2, h.backend.countCandidates(), "it has not joined again")
		h.lead()
		h.requireEvents("0s begin 1", "0s work ends 1", "1s end 1", "1s begin 2")
	})
}

// TestResignRequested_MovesFollowerToBack checks that a follower that is requested to resign joins again behind
// the other candidates, and calls no handler.
func TestResignRequested_MovesFollowerToBack(t *testing.T) {
	runElector(t, nil, func(h *harness) {
		first := h.backend.newest()
		close(first.requests)
		h.requireState(StateNotLeader)
		require.False(h, first.isActive())
		require.Equal(h, 2, h.backend.countCandidates())
		h.requireEvents()
	})
}

// TestResignRequested_TakesEffectAfterBegin checks that a request to resign during Begin does not interrupt
// Begin, and takes effect when Begin has returned.
func TestResignRequested_TakesEffectAfterBegin(t *testing.T) {
	runElector(t, func(h *harness) {
		h.elector.Begin = delayHandler(time.Second, h.handler("begin"))
	}, func(h *harness) {
		h.lead()
		close(h.backend.newest().requests)
		h.wait(time.Second)
		h.requireEvents("1s begin 1", "1s end 1")
		require.Equal(h, 2, h.backend.countCandidates())
	})
}

// TestResignRequested_DoesNotRejoinIfContextIsDone checks that a candidate that was requested to resign does
// not join again if the context of Run is done in the meantime.
func TestResignRequested_DoesNotRejoinIfContextIsDone(t *testing.T) {
	runElector(t, func(h *harness) {
		h.elector.End = func(context.Context, *leaderelection.Leadership) error { time.Sleep(time.Second); return nil }
	}, func(h *harness) {
		h.lead()
		close(h.backend.newest().requests)
		h.wait(time.Second / 2)
		h.stop()
		h.wait(time.Second / 2)
		require.NoError(h, h.requireReturned())
		require.Equal(h, 1, h.backend.countCandidates())
	})
}

// TestResignRequested_WaitsAfterFailedEnd checks that the next candidacy after a request to resign starts only
// after ErrorWait if End has failed.
func TestResignRequested_WaitsAfterFailedEnd(t *testing.T) {
	runElector(t, func(h *harness) { h.elector.End = h.handler("end", errBoom) }, func(h *harness) {
		h.lead()
		close(h.backend.newest().requests)
		h.wait(5 * time.Second)
		h.requireEvents("0s begin 1", "0s end 1", "5s end 1", "5s error 1")
		h.requireState(StateError)
		require.Equal(h, 1, h.backend.countCandidates())
	})
}

// TestLead_ReturnsAfterResignRequest checks that Lead returns ErrWithdrawn after a request to resign.
func TestLead_ReturnsAfterResignRequest(t *testing.T) {
	runLead(t, func(_ *harness, ctx context.Context, l *leaderelection.Leadership) error { <-ctx.Done(); return nil }, func(h *harness) {
		h.lead()
		close(h.backend.newest().requests)
		require.ErrorIs(h, h.requireReturned(), ErrWithdrawn)
		require.False(h, h.backend.newest().isActive())
	})
}

// TestResignRequested_RejoinsLastOnZooKeeper checks that a leader that is requested to resign joins again
// behind the other candidates.
func TestResignRequested_RejoinsLastOnZooKeeper(t *testing.T) {
	runOnZooKeeper(t, func(h *journal, srv *zktest.Server) {
		a, b := join(h, srv, "a", nil), join(h, srv, "b", nil)
		h.requireEvents("a begins")
		conn, _, err := srv.Connect(session)
		require.NoError(t, err)
		request := func(m *member) {
			require.NoError(t, resign.Request(context.Background(), conn, "/election", m.elector.Current().Candidate.CandidateID))
			h.wait(0)
		}
		request(a)
		h.requireEvents("a begins", "a ends", "b begins")
		request(b)
		h.requireEvents("a begins", "a ends", "b begins", "b ends", "a begins")
		require.Equal(t, StateLeader, a.elector.Current().State)
	})
}

// TestResignRequested_ReportsErrorOfBackend checks that an error with which the backend ends the candidacy is
// reported if it occurs while End runs because of a request to resign.
func TestResignRequested_ReportsErrorOfBackend(t *testing.T) {
	runElector(t, func(h *harness) {
		h.elector.End = func(context.Context, *leaderelection.Leadership) error { time.Sleep(time.Second); return nil }
	}, func(h *harness) {
		h.lead()
		close(h.backend.newest().requests)
		h.wait(time.Second / 2)
		h.backend.newest().fail(errBoom)
		h.wait(time.Second / 2)
		h.requireState(StateError)
		h.requireEvents("0s begin 1", "1s error 1")
	})
}
