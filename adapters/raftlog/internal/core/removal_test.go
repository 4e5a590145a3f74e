package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// TestRemovedPeer_LearnsOfRemovalAfterPartition checks that a peer that was removed from the cluster during a
// partition learns of its removal after the partition, and then refuses reads, to which no leader would reply.
func TestRemovedPeer_LearnsOfRemovalAfterPartition(t *testing.T) {
	h := newHarness(t, 3)
	learner := h.addLearner(3)
	h.advance(time.Second)
	l := h.leader()
	removed := h.otherPeers(l, learner)[0]
	h.isolate(removed)
	require.NoError(t, h.request(l, Request{Kind: api.KindConfig, Voters: apiPeersOf(h.otherPeers(removed))}).Err)
	h.cut = func(string, string) bool { return false }
	h.waitFor("the peer knows that it was removed", func() bool { return removed.core.Status().Role == Removed })
	require.Equal(t, []string{removed.self.ID}, removed.core.Membership().Removed)
	h.token++
	removed.core.Read(h.token, 0, h.now+time.Second)
	removed.handleOutput()
	require.ErrorIs(t, removed.replies[h.token].Err, api.ErrRefused)
}
