package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
)

// address is that of a peer as a node's tables have it.
func (n *node) address(id string) string {
	p, _ := n.core.Replica().Members.FindID(id)
	return p.Addr
}

// A peer that is started at another address is known there soon, whether it leads then or not.
func TestPeerMoves(t *testing.T) {
	w := newWorld(t, 3)
	for _, n := range w.nodes {
		w.until("a leader", func() bool { return w.leader() != nil })
		n.peer.Addr = "moved" + n.peer.Addr
		for _, m := range w.nodes {
			m.dials = 0
		}
		n.tables = n.core.Replica()
		n.start(n.tablesVoters())
		w.until("all know it", func() bool {
			for _, m := range w.nodes {
				if m.address(n.peer.ID) != n.peer.Addr {
					return false
				}
			}
			return true
		})
		for _, m := range w.nodes {
			require.Equal(t, 1, m.dials)
			require.Len(t, m.core.Replica().Members.Voters, 3)
		}
	}
	// Nothing more is written when all is known.
	w.run(time.Second)
	last := w.nodes[0].core.Status().Last
	w.run(5 * time.Second)
	require.Equal(t, last, w.nodes[0].core.Status().Last)
}

// The address of another member is not taken.
func TestPeerMovesToAnothers(t *testing.T) {
	w := newWorld(t, 3)
	w.until("a leader", func() bool { return w.leader() != nil })
	n, other := w.nodes[0], w.nodes[1]
	was := n.peer.Addr
	n.peer.Addr = other.peer.Addr
	n.tables = n.core.Replica()
	n.start(n.tablesVoters())
	w.until("a leader", func() bool { return w.leader() != nil })
	w.run(time.Second)
	last := w.leader().core.Status().Last
	w.run(5 * time.Second)
	require.Equal(t, last, w.leader().core.Status().Last, "it is not tried again and again")
	for _, m := range w.nodes {
		require.Equal(t, was, m.address(n.peer.ID))
	}
}

// A change of the voters that names the address of before leaves the new one.
func TestPeerMovesInAChange(t *testing.T) {
	w := newWorld(t, 3)
	d := w.add(peerNo(3), w.nodes[0].tablesVoters())
	w.until("it is admitted", func() bool { return w.leader() != nil && len(w.leader().core.Replica().Members.Learners) == 1 })
	w.run(time.Second)
	l := w.leader()
	var other *node
	for _, n := range w.nodes[:3] {
		if n != l {
			other = n
		}
	}
	var to []api.Peer
	for _, n := range w.nodes {
		to = append(to, n.peer)
	}
	// Both are under way at the same time.
	other.core.cfg.Self.Addr = "moved:1"
	require.NoError(t, l.core.proposeMove(l.member(other), "moved:1"))
	token := w.propose(l, Request{Kind: api.KindConfig, Voters: to})
	w.run(2 * time.Second)
	require.NoError(t, l.replies[token].Err)
	for _, n := range w.nodes {
		m := n.core.Replica().Members
		require.Empty(t, m.Removed)
		require.Len(t, m.Voters, 4)
		require.Equal(t, "moved:1", n.address(other.peer.ID))
	}
	require.True(t, d.core.Replica().Members.IsVoter(d.core.self))
}

func (n *node) member(other *node) entry.Peer {
	p, _ := n.core.Replica().Members.FindID(other.peer.ID)
	return p
}
