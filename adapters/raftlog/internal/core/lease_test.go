package core

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLeaseOfNewLeader: who begins to lead the log, and all who follow it, ask for their leases
// at once, and not with the next heartbeat.
func TestLeaseOfNewLeader(t *testing.T) {
	w := newWorld(t, 3)
	for range 10 {
		w.until("a leader", func() bool { return w.leader() != nil })
		w.run(2 * election)
		old := w.leader()
		for _, n := range w.nodes {
			n.core.lease.discardLease()
		}
		old.core.HandOver()
		old.drain()
		ready := func() bool {
			for _, n := range w.nodes {
				if n != old && n.core.Status().Ready {
					return true
				}
			}
			return false
		}
		w.until("another leader", ready)
		w.run(tick)
		for _, n := range w.nodes {
			require.Greater(t, n.core.Status().Lease, w.now, n.peer.ID)
		}
	}
}
