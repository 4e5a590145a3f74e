package core

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSuccession fails if the voters do not become candidates one after another when the leader is
// silent, so that another leads later than two turns after the election timeout. A peer whose turn
// is first and that is down as well costs one more turn.
func TestSuccession(t *testing.T) {
	const turn = turnTicks * tick
	for _, voters := range []int{3, 5, 7} {
		h := newHarness(t, voters)
		for down := 1; down <= voters/2; down++ {
			l := h.waitForLeader()
			h.advance(2 * election)
			require.Equal(t, l, h.leader())
			for _, p := range h.others(l) {
				require.Equal(t, l.core.self, p.core.expiry.lastFollowed.lead)
			}
			stopped := []*peer{l}
			for _, p := range h.others(l) {
				if p.core.votersBefore() < down-1 {
					stopped = append(stopped, p)
				}
			}
			require.Len(t, stopped, down)
			for _, p := range stopped {
				p.down = true
			}
			took := h.waitFor("another leader", func() bool {
				return slices.ContainsFunc(h.others(stopped...), func(p *peer) bool { return p.core.Status().Ready })
			})
			require.LessOrEqual(t, took, election+time.Duration(down+1)*turn, "%d voters, %d down", voters, down)
			for _, p := range stopped {
				p.start()
			}
			h.advance(2 * election)
		}
	}
}
