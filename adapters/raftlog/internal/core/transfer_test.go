package core

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHandOver_TakesNoElectionTimeout checks that a hand-over takes less than an election timeout, whenever
// it is requested, and that a hand-over in an idle cluster does not wait for any timeout.
func TestHandOver_TakesNoElectionTimeout(t *testing.T) {
	h := newHarness(t, 3)
	for range 25 {
		h.waitForLeader()
		h.advance(time.Duration(h.rand.IntN(300)) * time.Millisecond)
		require.Less(t, h.handOver(), election)
	}
	require.NoError(t, h.request(h.leader(), update("x")).Err)
	h.advance(2 * election)
	require.Less(t, h.handOver(), 100*time.Millisecond)
}

// TestCutOff_LeaderTransfersToPeerThatReachesVoter checks that a leader that cannot reach a voter hands over to a
// peer that reaches it, and that the leader does not hand over because of a short interruption.
func TestCutOff_LeaderTransfersToPeerThatReachesVoter(t *testing.T) {
	for _, prefers := range []int{0, 1} {
		h := newHarness(t, 5)
		l := h.waitForLeader()
		voter, target := h.otherPeers(l)[0], h.otherPeers(l)[1+prefers]
		h.cut = func(from, to string) bool {
			ends := []string{from, to}
			return slices.Contains(ends, voter.self.ID) && !slices.Contains(ends, target.self.ID)
		}
		h.advance(cutOffTimeouts * election)
		require.Equal(t, l, h.leader())
		h.waitFor("the other peer leads", func() bool { return h.leader() == target })
		require.Equal(t, l.core.term, target.core.term)
		h.waitFor("the voter has a leader", func() bool { return voter.core.lead == target.core.self })
	}
}
