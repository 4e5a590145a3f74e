package core

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// TestStall_StalledPeerLetsOthersLead checks that a peer with a stalled disk, whose messages are normal, does
// not prevent others from leading the log or the election of its candidate.
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

// TestStall_FollowerNoticesLostAppends checks that a peer that receives everything except for entries learns
// from the replies to its lease requests that there are entries.
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

// TestStall_DetectsNothingIfAllDisksStall checks that no peer counts as stalled while nothing is committed,
// because then no peer could lead although that needs no disk.
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

// TestStall_UnwrittenEntriesAreLimited checks that the size of the entries that a follower with a stalled
// disk has to write is limited, and that it receives the rest when its disk continues. The limit must not be
// so high that the leader reads much for a peer that is behind before it does anything else.
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
