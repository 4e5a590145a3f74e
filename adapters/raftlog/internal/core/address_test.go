package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// addressOf returns the address of the member with the given ID, according to the replica of p.
func (p *peer) addressOf(id string) string {
	m, _ := p.core.Replica().Members.FindID(id)
	return m.Addr
}

// TestMove_NewAddressReplacesPrevious checks that the address with which a peer is restarted replaces its
// previous address in the membership, whether the peer is the leader or not, and that no more entries are
// written once all peers know the new address.
func TestMove_NewAddressReplacesPrevious(t *testing.T) {
	h := newHarness(t, 3)
	for _, p := range h.peers {
		h.waitForLeader()
		p.self.Addr = "moved" + p.self.Addr
		for _, q := range h.peers {
			q.peersChanged = 0
		}
		p.replica = p.core.Replica()
		p.start()
		h.waitFor("all peers know the address", func() bool {
			for _, q := range h.peers {
				if q.addressOf(p.self.ID) != p.self.Addr {
					return false
				}
			}
			return true
		})
		for _, q := range h.peers {
			require.Equal(t, 1, q.peersChanged)
			require.Len(t, q.core.Replica().Members.Voters, 3)
		}
	}
	h.advance(time.Second)
	last := h.peers[0].core.Status().Last
	h.advance(5 * time.Second)
	require.Equal(t, last, h.peers[0].core.Status().Last)
}

// TestMove_AddressOfOtherMemberIsRejected checks that a peer that is restarted with the address of another
// member keeps its previous address in the membership, and that the rejected change is not proposed
// repeatedly.
func TestMove_AddressOfOtherMemberIsRejected(t *testing.T) {
	h := newHarness(t, 3)
	h.waitForLeader()
	p, other := h.peers[0], h.peers[1]
	before := p.self.Addr
	p.self.Addr = other.self.Addr
	p.replica = p.core.Replica()
	p.start()
	h.waitForLeader()
	h.advance(time.Second)
	last := h.leader().core.Status().Last
	h.advance(5 * time.Second)
	require.Equal(t, last, h.leader().core.Status().Last)
	for _, q := range h.peers {
		require.Equal(t, before, q.addressOf(p.self.ID))
	}
}

// TestMove_IsNotRevertedByConcurrentChange checks that a change of the voters whose request contains the
// previous address of a peer does not undo a change of that address which is in flight at the same time.
func TestMove_IsNotRevertedByConcurrentChange(t *testing.T) {
	h := newHarness(t, 3)
	learner := h.addLearner(3)
	h.advance(time.Second)
	l := h.leader()
	other := h.otherPeers(l, learner)[0]
	other.core.cfg.Self.Addr = "moved:1"
	member, _ := l.core.Replica().Members.FindID(other.self.ID)
	require.NoError(t, l.core.proposeMove(member, "moved:1"))
	require.NoError(t, h.request(l, Request{Kind: api.KindConfig, Voters: apiPeersOf(h.peers)}).Err)
	h.advance(time.Second)
	for _, p := range h.peers {
		m := p.core.Replica().Members
		require.Empty(t, m.Removed)
		require.Len(t, m.Voters, 4)
		require.Equal(t, "moved:1", p.addressOf(other.self.ID))
	}
	require.True(t, learner.core.Replica().Members.IsVoter(learner.core.self))
}

// TestMove_IsReportedToLeaderByOtherMember checks that the leader learns the new address of a member that cannot
// reach the leader, because another member passes the announcement on.
func TestMove_IsReportedToLeaderByOtherMember(t *testing.T) {
	h, l := startCluster(t)
	moved := h.otherPeers(l)[0]
	h.cut = func(from, to string) bool {
		return (from == l.self.ID || to == l.self.ID) && (from == moved.self.ID || to == moved.self.ID)
	}
	moved.self.Addr = "moved:1"
	moved.replica = moved.core.Replica()
	moved.start()
	h.waitFor("the leader knows the address", func() bool { return l.addressOf(moved.self.ID) == "moved:1" })
	require.Equal(t, l, h.leader())
}

// TestPeers_ReturnsBothAddressesOfMember checks that Peers returns the address of a member in the log and
// the configured address of the same member, and no address of a removed peer.
func TestPeers_ReturnsBothAddressesOfMember(t *testing.T) {
	h := newHarness(t, 3)
	p := h.peers[0]
	p.core.cfg.Seeds = []api.Peer{p.self, {ID: "p1", Addr: "moved:1"}, peerInfo(2), {ID: "x", Addr: "x:1"}, {ID: "y", Addr: "y:1"}}
	p.core.replica.Members.Removed = []string{"y"}
	require.ElementsMatch(t, []api.Peer{peerInfo(1), {ID: "p1", Addr: "moved:1"}, peerInfo(2), {ID: "x", Addr: "x:1"}}, p.core.Peers())
}
