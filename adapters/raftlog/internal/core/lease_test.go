package core

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLease_NewLeader fails if a new leader and its followers wait for the next heartbeat before they
// request their leases.
func TestLease_NewLeader(t *testing.T) {
	h := newHarness(t, 3)
	for range 10 {
		h.waitForLeader()
		h.advance(2 * election)
		old := h.leader()
		for _, p := range h.peers {
			p.core.lease.discardLease()
		}
		old.core.HandOver()
		old.handleOutput()
		h.waitFor("another leader", func() bool {
			for _, p := range h.others(old) {
				if p.core.Status().Ready {
					return true
				}
			}
			return false
		})
		h.advance(tick)
		for _, p := range h.peers {
			require.Greater(t, p.core.Status().Lease, h.now, p.self.ID)
		}
	}
}
