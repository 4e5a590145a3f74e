package raftlog_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// TestObserve_DeliversNewestLeader checks that Observe delivers the newest leader, the absence of a leader, and
// the end of the election, and delivers nothing while the leader has not changed.
func TestObserve_DeliversNewestLeader(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		p := h.otherPeers(h.waitForLeader(t))[0]
		n := h.nodeOf(p)
		looking, stop := context.WithCancel(t.Context())
		defer stop()
		in, err := raftlog.Observe(looking, n, "e")
		require.NoError(t, err)
		next := func() leaderelection.Observation {
			t.Helper()
			select {
			case o := <-in:
				return o
			case <-time.After(time.Minute):
				t.Fatal("no observation")
			}
			return leaderelection.Observation{}
		}
		require.Equal(t, leaderelection.Observation{}, next(), "there is no leader")

		first := startLeader(t, h.nodeOf(h.peers[0]), "e")
		o := next()
		require.Equal(t, first.ID(), o.Leader.ID)
		require.EqualValues(t, first.Current().Leadership.Token(), o.Leader.Token)
		*o.Leader = leaderelection.CandidateInfo{} // the receiver owns the observation, and may change it
		others, err := raftlog.Candidates(t.Context(), n, "other")
		require.NoError(t, err)
		require.Empty(t, others)

		// A change that does not concern the leader of the election causes no observation.
		second := startCandidate(t, h.nodeOf(h.peers[1]), "e")
		startCandidate(t, n, "other").waitForLeadership(t)
		proposeUntilKnown(t, n, api.NewRequestID(), "an update")
		synctest.Wait()
		select {
		case o := <-in:
			t.Fatalf("observation without a change: %v", o)
		default:
		}

		// A slow observer receives only the newest leader.
		first.Resign()
		second.waitForLeadership(t)
		second.Resign()
		third := startLeader(t, n, "e")
		synctest.Wait()
		o = next()
		require.Equal(t, third.ID(), o.Leader.ID)
		all, err := raftlog.Candidates(t.Context(), n, "e")
		require.NoError(t, err)
		require.NotEmpty(t, all)
		require.Equal(t, *o.Leader, all[0])

		deleteElection(t, n, "e")
		require.ErrorIs(t, next().Err, leaderelection.ErrElectionOver)
		_, open := <-in
		require.False(t, open)
		in, err = raftlog.Observe(looking, n, "e")
		require.NoError(t, err)
		require.ErrorIs(t, next().Err, leaderelection.ErrElectionOver)
		_, err = raftlog.Candidates(t.Context(), n, "e")
		require.ErrorIs(t, err, leaderelection.ErrElectionOver)

		in, err = raftlog.Observe(looking, n, "f")
		require.NoError(t, err)
		stop()
		next() // either the observation that there is no leader, or the zero value of the closed channel
		synctest.Wait()
		_, open = <-in
		require.False(t, open)

		_, err = raftlog.Observe(t.Context(), n, "")
		require.ErrorIs(t, err, leaderelection.ErrInvalid)
		_, err = raftlog.Observe(looking, n, "e")
		require.ErrorIs(t, err, context.Canceled)
	})
}

// TestObserve_DeliversReasonWhenNodeCloses checks that an observer that has read nothing yet receives
// ErrConnClosed when its node is closed.
func TestObserve_DeliversReasonWhenNodeCloses(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		p := h.otherPeers(h.waitForLeader(t))[0]
		n := h.nodeOf(p)
		in, err := raftlog.Observe(t.Context(), n, "e")
		require.NoError(t, err)
		synctest.Wait()
		require.NoError(t, h.stopPeer(p))
		require.ErrorIs(t, (<-in).Err, leaderelection.ErrConnClosed)
		_, open := <-in
		require.False(t, open)
		_, err = raftlog.Observe(t.Context(), n, "e")
		require.ErrorIs(t, err, leaderelection.ErrConnClosed)
	})
}

// TestObserve_DeliversReasonAtRemovedPeer checks that an observer at a peer that is removed from the cluster
// receives ErrRefused.
func TestObserve_DeliversReasonAtRemovedPeer(t *testing.T) {
	runCluster(t, 4, func(t *testing.T, h *harness) {
		p := h.otherPeers(h.waitForLeader(t))[0]
		in, err := raftlog.Observe(t.Context(), h.nodeOf(p), "e")
		require.NoError(t, err)
		h.changeVoters(t, p, h.otherPeers(p)...)
		for o := range in {
			if o.Err != nil {
				require.ErrorIs(t, o.Err, leaderelection.ErrConnClosed)
				require.ErrorIs(t, o.Err, api.ErrRefused)
				return
			}
		}
		t.Fatal("the observer has received no error")
	})
}
