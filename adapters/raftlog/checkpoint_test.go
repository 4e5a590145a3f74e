package raftlog_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// TestCheckpoint_CommitsEarlierEntries checks that an update that only a restarted leader has is committed when
// the other peers return, without another update. The steps are those of the scenario in the README of ØMQ
// Raft.
func TestCheckpoint_CommitsEarlierEntries(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		a := h.waitForLeader(t)
		before := h.nodeOf(a).Info()
		for _, p := range h.otherPeers(a) {
			require.NoError(t, h.stopPeer(p)) // step 1: peers B and C stop
		}
		id := api.NewRequestID()
		_, err := h.nodeOf(a).Propose(contextWithin(t, 50*time.Millisecond), id, []byte("update")) // steps 2 and 3
		require.ErrorIs(t, err, api.ErrUnknownOutcome)
		require.Equal(t, before.LastIndex+1, h.nodeOf(a).Info().LastIndex, "only A has appended the entry")
		require.NoError(t, h.stopPeer(a)) // step 4: A stops
		h.startPeer(a)
		require.Equal(t, before.CommitIndex, h.nodeOf(a).Info().CommitIndex)
		h.startPeer(h.otherPeers(a)[0])                                          // step 5, first part: peer B returns
		require.Equal(t, a, h.waitForLeader(t), "the peer with the longest log") // step 6: A is elected
		h.startPeer(h.otherPeers(a)[1])                                          // step 5, second part: peer C returns
		waitFor(t, "all peers have applied the update", func() bool {            // steps 7 to 9: the update is committed
			for _, p := range h.peers {
				if len(h.machine(p).recordedUpdates()) != 1 {
					return false
				}
			}
			return true
		})
		s := h.nodeOf(a).Subscribe(t.Context(), before.LastIndex+1)
		defer s.Close()
		update, checkpoint := nextEvent(t, s), nextEvent(t, s)
		require.Equal(t, []byte("update"), update.Entry.Data)
		if checkpoint.Entry.Kind == api.KindControl { // peer A has tried to transfer its leadership when it was stopped
			checkpoint = nextEvent(t, s)
		}
		require.Equal(t, api.KindCheckpoint, checkpoint.Entry.Kind)
		require.Greater(t, checkpoint.Entry.Term, update.Entry.Term)
		index := h.propose(t, a, id, "update")
		require.Equal(t, update.Entry.Index, index)
		h.requireUpdates(t, h.peers, "update")
	})
}
