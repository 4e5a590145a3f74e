package core

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSuccession_VotersBecomeCandidatesInTurn checks that the voters become candidates one after another when
// the leader is silent, so that another peer leads no later than two turns after the election timeout. Each
// peer that is down when its turn comes costs one more turn. If the engine's random timeout of another voter
// ends during the first turn, the votes can be split, which happens in about one of a hundred successions. So
// the test judges by the median.
func TestSuccession_VotersBecomeCandidatesInTurn(t *testing.T) {
	const turn, rounds = turnTicks * tick, 9
	for _, voters := range []int{3, 5, 7} {
		for down := 1; down <= voters/2; down++ {
			var took []time.Duration
			for range rounds {
				took = append(took, electSuccessor(t, voters, down))
			}
			slices.Sort(took)
			require.LessOrEqual(t, took[rounds/2], election+time.Duration(down+1)*turn, "%d voters, %d down: %v", voters, down, took)
		}
	}
}

// electSuccessor stops as many peers as down says: the leader, and the voters whose turns come first. It
// returns the time until another peer leads.
func electSuccessor(t *testing.T, voters, down int) time.Duration {
	h := newHarness(t, voters)
	l := h.waitForLeader()
	h.advance(2 * election)
	require.Equal(t, l, h.leader())
	for _, p := range h.otherPeers(l) {
		require.Equal(t, l.core.self, p.core.expiry.lastFollowed.lead)
	}
	stopped := []*peer{l}
	for _, p := range h.otherPeers(l) {
		if p.core.votersBefore() < down-1 {
			stopped = append(stopped, p)
		}
	}
	require.Len(t, stopped, down)
	for _, p := range stopped {
		p.down = true
	}
	return h.waitFor("another leader", func() bool {
		return slices.ContainsFunc(h.otherPeers(stopped...), func(p *peer) bool { return p.core.Status().Ready })
	})
}
