package core

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLease_NewLeaderRequestsLeaseImmediately checks that a new leader and its followers send lease requests
// immediately, and not only with the next heartbeat.
func TestLease_NewLeaderRequestsLeaseImmediately(t *testing.T) {
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
			for _, p := range h.otherPeers(old) {
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

// TestLease_IsNotExtendedByRequestBeforeSuspension checks that a lease request that a peer sent before
// its machine was suspended does not extend the lease of the peer, even if the peer handles the reply, or
// applies the entry for which the reply waits, before its next tick.
func TestLease_IsNotExtendedByRequestBeforeSuspension(t *testing.T) {
	for name, waitsForEntry := range map[string]bool{"reply": false, "entry": true} {
		for _, suspended := range []bool{false, true} {
			t.Run(fmt.Sprint(name, "/", suspended), func(t *testing.T) {
				h, l := startCluster(t)
				p := h.otherPeers(l)[0]
				h.advance(2 * election)
				if waitsForEntry {
					p.diskStalled = true
					require.NoError(t, h.request(l, update("")).Err)
				}
				seq := p.core.lease.seq
				h.waitFor("a request", func() bool { return p.core.lease.seq > seq })
				old := p.core.Status().Lease
				require.Greater(t, old, h.now)

				p.down = true // from now on p receives frames, but Advance is not called
				suspend := func() {
					if suspended {
						p.skew += time.Minute
					}
				}
				if !waitsForEntry {
					suspend()
				}
				for range 10 {
					h.inFlight = slices.DeleteFunc(h.inFlight, func(m transmission) bool {
						if m.to == p.self.ID {
							require.NoError(t, p.core.Receive(m.from, m.frame))
						}
						return m.to == p.self.ID
					})
					p.handleOutput()
					h.advance(time.Millisecond)
				}
				if waitsForEntry {
					require.NotEmpty(t, p.core.lease.granted)
					require.Equal(t, old, p.core.Status().Lease)
					suspend()
				}
				p.diskStalled = false
				p.handleOutput()
				p.handleOutput()
				if suspended {
					require.Zero(t, p.core.Status().Lease)
				} else {
					require.Greater(t, p.core.Status().Lease, old)
				}
			})
		}
	}
}
