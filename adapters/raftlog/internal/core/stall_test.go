package core

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// TestStall_StalledPeerLetsOthersLead checks that a peer whose disk is stalled, but whose heartbeats are
// normal, gives up the leadership of the log and the leadership of its candidate, so that others lead.
func TestStall_StalledPeerLetsOthersLead(t *testing.T) {
	for name, leads := range map[string]bool{"follower": false, "leader": true} {
		t.Run(name, func(t *testing.T) {
			h, l := startCluster(t)
			p, other := h.otherPeers(l)[0], h.otherPeers(l)[1]
			if leads {
				p = l
			}
			p.core.AddCandidate("e", "first", "")
			h.waitForHolder("first")
			other.core.AddCandidate("e", "second", "")
			h.advance(2 * election)
			term := l.core.Status().Term
			p.diskStalled = true
			for range 30 {
				h.propose(other, Request{Kind: api.KindState, Forward: true})
				h.advance(2 * tick)
			}
			h.waitForHolder("second")
			h.advance(10 * election)
			require.Equal(t, []string{"second"}, h.possibleLeaders("e"))
			require.Equal(t, leads, other.core.Status().Term > term, "the log must have another leader only if its leader is stalled")
			token := h.propose(other, Request{Kind: api.KindState, Forward: true})
			h.advance(election / 2)
			require.NoError(t, other.replies[token].Err)

			p.diskStalled = false
			h.waitFor("the candidate has joined again", func() bool { return other.core.Replica().Elections.Get("e").Position("first") == 1 })
			h.waitFor("the states are equal", func() bool { return p.core.Replica().Sum() == other.core.Replica().Sum() })
			require.False(t, p.core.stall.stalled)
		})
	}
}

// TestStall_FollowerNoticesLostAppends checks that a peer that receives all messages except for those with
// entries learns from the replies to its lease requests that there are entries which it lacks.
func TestStall_FollowerNoticesLostAppends(t *testing.T) {
	h, l := startCluster(t)
	p, other := h.otherPeers(l)[0], h.otherPeers(l)[1]
	p.core.AddCandidate("e", "first", "")
	h.waitForHolder("first")
	other.core.AddCandidate("e", "second", "")
	h.advance(election)
	h.drops = func(m transmission) bool {
		a := &raftpb.Message{}
		return m.to == p.self.ID && m.frame[0] == frameRaft && proto.Unmarshal(m.frame[frameHeader:], a) == nil && a.GetType() == raftpb.MsgApp
	}
	h.propose(l, update(""))
	h.waitForHolder("second")
	require.Equal(t, l, h.leader())
	h.drops = func(transmission) bool { return false }
	h.waitFor("the candidate has joined again", func() bool { return l.core.Replica().Elections.Get("e").Position("first") == 1 })
	require.Equal(t, l, h.leader())
}

// TestStall_DetectsNothingIfAllDisksStall checks that no peer considers itself as stalled while the disks
// of all peers are, because otherwise no peer could lead although leading needs no disk.
func TestStall_DetectsNothingIfAllDisksStall(t *testing.T) {
	h, l := startCluster(t)
	h.peers[0].core.AddCandidate("e", "one", "")
	h.waitForHolder("one")
	h.advance(election)
	h.setDisksStalled(true)
	h.propose(l, update(""))
	h.advance(10 * election)
	require.Equal(t, l, h.leader())
	require.Equal(t, []string{"one"}, h.possibleLeaders("e"))
	for _, p := range h.peers {
		require.False(t, p.core.stall.stalled)
	}
}

// TestStall_UnwrittenEntriesAreLimited checks that a follower with a stalled disk receives only a limited
// size of entries, and receives the remaining entries when its disk continues. The limit keeps the leader
// from reading many entries at once for a peer that lacks them, during which the leader does nothing else.
func TestStall_UnwrittenEntriesAreLimited(t *testing.T) {
	h, l := startCluster(t)
	p := h.otherPeers(l)[0]
	p.diskStalled = true
	const size = 1 << 20
	data := make([]byte, size)
	for range maxInflightBytes/size + 8 {
		require.NoError(t, h.request(l, Request{Kind: api.KindState, Data: data}).Err)
	}
	h.advance(election)
	unwritten := 0
	for _, w := range p.writes {
		for _, e := range w.Entries {
			unwritten += len(e.GetData())
		}
	}
	require.Greater(t, unwritten, maxInflightBytes/2)
	require.Less(t, unwritten, maxInflightBytes+2*size)
	require.Less(t, unwritten, 8<<20)
	p.diskStalled = false
	h.waitFor("all entries are applied", func() bool { return p.core.Status().Applied == l.core.Status().Commit })
}
