package leaderelection_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/candidacy"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// CURATOR-344, TN1, marathon #4640: a reader that does not receive blocks everything. Here it
// receives the first status, and the next one long after.
func TestTrap30_SlowReader(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		conn := h.connect()
		e, err := leaderelection.NewElection(conn, node, leaderelection.WithSessionTimeout(timeout))
		require.NoError(h, err)
		result := bubble.Async(e.ElectLeader)
		h.advance(0)
		first := receive(h, e.Status())
		require.Equal(h, leaderelection.Leader, first.Role)
		other := h.join(conn)
		for range 3 {
			h.advance(timeout)
			h.srv.Blackhole(zktest.BothWays, conn.SessionID())
			h.advance(timeout * 5 / 8) // longer than a lease, and too short for a reconnect
			require.Equal(h, leaderelection.Suspended, e.Current().Role)
			h.srv.Heal()
			h.advance(timeout / 2)
			require.Equal(h, leaderelection.Leader, e.Current().Role)
		}
		require.Equal(h, e.ID(), other.newest().NowFollowing)
		require.Len(h, other.received(), 1)
		require.Equal(h, leaderelection.Suspended, receive(h, e.Status()).Role, "the loss of the first leadership")
		again := receive(h, e.Status())
		require.Same(h, e.Current().Leadership, again.Leadership)
		require.NoError(h, again.Leadership.Err())
		require.Empty(h, e.Status(), "old statuses were kept")

		h.remove(e.ID())
		h.advance(shortTime)
		require.ErrorIs(h, receive(h, result), leaderelection.ErrDeleted)
		other.requireLeads()
		last := receive(h, e.Status())
		for s := range e.Status() {
			last = s
		}
		require.ErrorIs(h, last.Err, leaderelection.ErrDeleted)
	})
}

// TestStatus_String fails if the texts for logs change.
func TestStatus_String(t *testing.T) {
	require.Equal(t, "follower", leaderelection.Role(0).String())
	require.Equal(t, "Role(9)", leaderelection.Role(9).String())
	l, _ := candidacy.NewLeadership(12, nil)
	require.Equal(t, "leader /e/n token 12 (was following /e/m)",
		leaderelection.Status{CandidateID: "/e/n", Role: leaderelection.Leader, Leadership: l, WasFollowing: "/e/m"}.String())
	require.Equal(t, "follower /e/n following /e/m: session expired",
		leaderelection.Status{CandidateID: "/e/n", NowFollowing: "/e/m", Err: leaderelection.ErrSessionExpired}.String())
}
