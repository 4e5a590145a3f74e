package simulation

// This file simulates peers that lose their disks.

import (
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
)

// lostDisk is a peer that has lost its disk and returns with the same ID. It must stop when the leader tells
// it what it has acknowledged. If another leader replaces that leader, no peer remembers what the peer has
// acknowledged, and the log cannot detect the loss. So the harness stops the peer before it can violate a
// condition.
type lostDisk struct {
	p, leader *peer
	term      uint64
}

// loseDisk gives a random voter an empty disk, if only the leader can send messages to the voter.
func (h *harness) loseDisk() {
	l := h.leader()
	if h.lostDisk != nil || h.clients.changing || l == nil || !l.observed.ready || len(l.core.Replica().Members.Voters) < 3 {
		return
	}
	m := l.core.Replica().Members
	p := h.peerByID(m.Voters[h.rand.IntN(len(m.Voters))].ID)
	first := uint64(1)
	if !p.isFounder() {
		_, newest := l.newestFile()
		first = newest.Index
	}
	if p == l || m.Joint() || l.core.Acknowledged(p.ID) <= first {
		return
	}
	for _, q := range h.peers {
		switch {
		case q.observed.term > l.observed.term || q.durable.vote.term > l.observed.term,
			q.up && (q.paused || q != l && q.observed.isLeader || q.core.Status().Role == core.Candidate),
			q.stopped && m.IsVoter(q.raft):
			return
		}
	}
	h.tracef("%s: loses its disk; %s remembers its acknowledgement of entry %d", p.ID, l.ID, l.core.Acknowledged(p.ID))
	h.checker.counts["lostDisks"]++
	h.lostDisk = &lostDisk{p, l, l.observed.term}
	h.clients.pending++
	h.clients.changing = true
	p.crash()
	p.replaceDisk()
	if p.isFounder() {
		p.createFounder(p.seeds)
	} else {
		p.createFromSnapshot(l, p.seeds)
	}
	h.schedule(h.duration(time.Millisecond, 50*time.Millisecond), p.start)
	h.schedule(election, func() { h.replaceLostDisk(p) }) // stop the peer before it may vote
}

func (p *peer) isFounder() bool { return slices.Contains(p.seeds, p.Peer) }

// hasLostDisk reports whether the peer has lost its disk and still runs.
func (p *peer) hasLostDisk() bool { return p.h.lostDisk != nil && p.h.lostDisk.p == p }

// watchLostDisk stops the peer that has lost its disk if the state of q shows that another leader has replaced
// the leader that remembers the acknowledgements.
func (h *harness) watchLostDisk(q *peer) {
	if x := h.lostDisk; x != nil && (q.observed.term > x.term || q == x.leader && !q.observed.isLeader) {
		h.schedule(0, func() { h.replaceLostDisk(x.p) })
	}
}

// stopLostDisk handles the expected reaction of a peer that has lost its disk: the peer has learned from the
// leader that its log lacks acknowledged entries, and must stop. stopLostDisk replaces the peer.
func (h *harness) stopLostDisk(p *peer, reason error) {
	h.tracef("%s: must stop: %v", p.ID, reason)
	h.checker.counts["lost"]++
	h.replaceLostDisk(p)
}

// replaceLostDisk stops the peer that has lost its disk, and replaces it by a peer with a new ID.
func (h *harness) replaceLostDisk(p *peer) {
	if !p.hasLostDisk() {
		return
	}
	h.lostDisk = nil
	if p.up {
		p.powerOff()
	}
	h.tracef("%s: is stopped permanently", p.ID)
	p.stopped = true
	h.clients.replacePeer(p)
}

// diskLost is the scenario in which a voter loses its disk while there are no other faults. The voter
// must stop.
func diskLost(h *harness) {
	h.waitFor("health at the start", recoveryLimit, h.findProblem)
	for h.lostDisk == nil {
		h.loseDisk()
		h.advance(h.now + time.Millisecond)
	}
	h.waitFor("it has stopped", election, func() string {
		if h.checker.counts["lost"] == 0 {
			return h.lostDisk.p.ID + " continues without its disk"
		}
		return ""
	})
}

// replacePeer replaces a voter that has stopped permanently by a new peer.
func (c *clients) replacePeer(old *peer) {
	h := c.h
	from := h.leader()
	if from == nil || from.paused || !from.observed.ready || from.core.Replica().Members.Joint() {
		h.schedule(h.duration(10*time.Millisecond, 100*time.Millisecond), func() { c.replacePeer(old) })
		return
	}
	voters := from.core.Replica().Members.Membership().Voters
	to := slices.DeleteFunc(slices.Clone(voters), func(v api.Peer) bool { return v == old.Peer })
	p := h.newPeer()
	p.createFromSnapshot(from, to)
	p.start()
	h.tracef("clients: %s replaces %s", p.ID, old.ID)
	c.changeVoters(h.newID(), append(to, p.Peer), func() {
		h.checker.counts["changes"]++
		c.pending--
		c.changing = false
	})
}
