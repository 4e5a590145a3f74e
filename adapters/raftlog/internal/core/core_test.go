package core

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// TestElections fails if an election does not have exactly one leader, or has no other leader when
// the peer of its leader fails. A peer that returns has a new candidate, while that of its previous
// process may still be queued.
func TestElections(t *testing.T) {
	h := newHarness(t, 3)
	h.waitForLeader()
	for i, p := range h.peers {
		p.core.AddCandidate("e", fmt.Sprint("c", i), "")
		p.handleOutput()
	}
	h.waitFor("a holder", func() bool { return len(h.holders("e")) == 1 })
	for range 6 {
		h.advance(time.Second)
		holders := h.holders("e")
		require.Len(t, holders, 1)
		i := slices.IndexFunc(h.peers, func(p *peer) bool { return p.self.ID[1:] == holders[0][1:2] })
		p := h.peers[i]
		isLeader := p == h.leader()
		p.down = true
		took := h.waitFor("another holder", func() bool { next := h.holders("e"); return len(next) == 1 && next[0] != holders[0] })
		t.Logf("%s failed, whose peer was the leader of the log: %t: %v", holders[0], isLeader, took)
		p.replica = replica.New(founders(), 7*time.Hour, election)
		p.start(founders())
		p.core.AddCandidate("e", "d"+p.self.ID[1:]+fmt.Sprint(h.now), "")
		h.advance(2 * time.Second)
	}
}

// TestPeers_Seeds fails if a peer contacts only the members that it knows: while it was disconnected
// they may have been replaced. It must not contact removed peers.
func TestPeers_Seeds(t *testing.T) {
	h := newHarness(t, 3)
	p := h.peers[0]
	p.start(append(founders(), replica.Numbered("test", peerInfo(8)), replica.Numbered("test", peerInfo(9))))
	p.core.replica.Members.Removed = []string{peerInfo(9).ID}
	require.Contains(t, p.core.Peers(), peerInfo(8))
	require.NotContains(t, p.core.Peers(), peerInfo(9))
	require.NotContains(t, p.core.Peers(), p.self)
	require.Len(t, p.core.Peers(), 3, "each peer once")
}

// TestSnapshot_ForLearner fails if a leader that has truncated its log does not request a snapshot
// that contains a new learner, even while another learner waits for a snapshot.
func TestSnapshot_ForLearner(t *testing.T) {
	h := newHarness(t, 3)
	l := h.waitForLeader()
	for i := range 3 {
		l.core.AddCandidate(fmt.Sprint("e", i), fmt.Sprint("c", i), "")
		l.handleOutput()
	}
	h.advance(time.Second)
	s := l.core.Status()
	l.core.ReportSnapshotCreated(Snapshot{Index: s.Applied, Term: s.Term, Members: 1})
	l.handleOutput()
	require.Equal(t, s.Applied+1, l.core.Status().First)
	h.addPeer(peerInfo(3), founders())
	h.waitFor("a snapshot is requested", func() bool { return l.snapshotRequests > 0 })
	h.addPeer(peerInfo(4), founders())
	h.waitFor("another snapshot is requested", func() bool { return l.snapshotRequests > 1 })
}
