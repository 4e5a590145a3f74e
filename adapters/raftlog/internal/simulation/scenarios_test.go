package simulation

// This file contains scenarios: constructed sequences of faults that rarely happen at random.

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// scenarioPlan returns the plan of a run with three voters and a scenario instead of random faults.
func scenarioPlan(seed uint64, scenario func(*harness)) plan {
	return plan{
		seed: seed, voters: 3, window: 7 * time.Hour, syncs: true, elections: 1, scenario: scenario,
	}
}

// waitUntil lets virtual time pass until ok returns true, which it calls very often. It returns false
// if limit has passed before.
func (h *harness) waitUntil(limit time.Duration, ok func() bool) bool {
	for end := h.now + limit; h.now < end; {
		if ok() {
			return true
		}
		h.advance(h.now + 50*time.Microsecond)
	}
	return ok()
}

// leaderAndOthers returns the leader of the log, after its candidate leads election e0, and the two
// other peers.
func (h *harness) leaderAndOthers() (leader, a, b *peer) {
	h.waitFor("health at the start", recoveryLimit, h.findProblem)
	leader = h.leader()
	h.moveElection(leader)
	others := h.peersWhere(func(p *peer) bool { return p != leader })
	if h.randomBool(0.5) {
		return leader, others[1], others[0]
	}
	return leader, others[0], others[1]
}

// moveElection makes the leaders of election e0 resign until the candidate of p leads the election.
func (h *harness) moveElection(p *peer) {
	for q := h.holder(); q != p; q = h.holder() {
		q.resignElection("e0")
		q.handleOutput()
		h.advance(h.now + 500*time.Millisecond)
		h.waitFor("another leader of e0", recoveryLimit, h.findProblem)
	}
}

func (h *harness) block(from, to *peer)         { h.net.cuts[peerPair{from.ID, to.ID}] = blocked }
func (h *harness) healDirection(from, to *peer) { h.net.cuts[peerPair{from.ID, to.ID}] = 0 }

// holdFrames holds back the frames from one peer to another until releaseFrames is called.
func (h *harness) holdFrames(from, to *peer) {
	h.healDirection(from, to)
	h.net.held[peerPair{from.ID, to.ID}] = []func(){}
}

func (h *harness) releaseFrames(from, to *peer) {
	direction := peerPair{from.ID, to.ID}
	for _, deliver := range h.net.held[direction] {
		deliver()
	}
	delete(h.net.held, direction)
}

// waitForLease waits until the leader l has renewed its lease.
func (h *harness) waitForLease(l *peer) bool {
	return h.waitUntil(election, func() bool { return l.observed.isLeader && l.observed.lease > l.Now()+election*9/10 })
}

// voterRestarts is the scenario in which a follower confirms the leader and restarts. Then the leader
// is partitioned, and the third peer, which has received nothing from the leader for long, requests
// votes.
func voterRestarts(h *harness) {
	l, v, x := h.leaderAndOthers()
	h.block(l, x)
	h.advance(h.now + h.duration(0, 2*election))
	if !h.waitForLease(l) {
		return
	}
	for _, q := range []*peer{v, x} {
		h.block(l, q)
		h.block(q, l)
	}
	v.crash()
	v.start()
	h.advance(h.now + 2*election)
}

// leaderReceivesNewerTerm is the scenario in which a peer starts a newer term without being elected,
// while the leader continues with the third peer. Just after the leader has renewed its lease, it
// receives the newer term, steps down, and receives a vote request.
func leaderReceivesNewerTerm(h *harness) {
	l, v, x := h.leaderAndOthers()
	if !h.raiseTerm(l, v, x) {
		return
	}
	h.healDirection(l, v)
	h.advance(h.now + h.duration(0, 2*election))
	if !h.waitForLease(l) {
		return
	}
	h.healDirection(x, v)
	h.healDirection(l, x)
	h.healDirection(x, l)
	h.waitUntil(election, func() bool { return x.observed.isLeader })
	h.block(x, l)
	h.block(v, l)
	h.advance(h.now + election)
}

// followerReceivesNewerTerm is the scenario in which a peer starts a newer term without being elected.
// A follower requests the vote of that peer, then receives messages of the leader again and confirms
// the leader. Then the follower receives the rejection, with the newer term.
func followerReceivesNewerTerm(h *harness) {
	l, v, x := h.leaderAndOthers()
	if !h.raiseTerm(l, v, x) {
		return
	}
	h.holdFrames(x, v)
	if !h.waitUntil(election, func() bool { return v.core.Status().Role == core.Candidate }) {
		return
	}
	h.advance(h.now + 2*time.Millisecond)
	h.healDirection(l, v)
	h.advance(h.now + h.duration(0, election))
	if !h.waitForLease(l) {
		return
	}
	h.block(l, v)
	h.block(v, l)
	h.releaseFrames(x, v)
	h.advance(h.now + 2*election)
}

// raiseTerm partitions the leader l until x is a candidate, and then partitions x, so that no peer
// votes for x. So x has a newer term without being elected.
func (h *harness) raiseTerm(l, v, x *peer) bool {
	h.block(l, x)
	h.block(l, v)
	if !h.waitUntil(4*election, func() bool { return x.observed.term > l.observed.term }) || x.core.Status().Role != core.Candidate {
		return false
	}
	h.block(x, v)
	h.block(x, l)
	return l.observed.isLeader
}

// endedWhilePartitioned is the scenario in which an election is ended and restarted while its leader is
// partitioned.
func endedWhilePartitioned(h *harness) {
	h.waitFor("health at the start", recoveryLimit, h.findProblem)
	if p := h.holder(); !p.observed.isLeader {
		h.waitUntil(election, func() bool { return p.observed.lease > p.Now()+election*9/10 })
		for _, q := range h.peers {
			h.block(q, p)
			h.block(p, q)
		}
	}
	h.clients.pending++
	h.clients.requestOp(h.opWithCurrentIndex(replica.End, "e0"), func() {
		h.clients.requestOp(h.opWithCurrentIndex(replica.Restart, "e0"), func() { h.clients.pending-- })
	})
	h.advance(h.now + 2*election)
}

// forgottenWhilePaused is the scenario in which an election is ended while the process of its leader is
// paused, and all wall clocks jump by more than the window.
func forgottenWhilePaused(h *harness) {
	h.waitFor("health at the start", recoveryLimit, h.findProblem)
	if p := h.holder(); !p.observed.isLeader {
		h.waitUntil(election, func() bool { return p.observed.lease > p.Now()+election*9/10 })
		p.pause(2 * election)
	}
	h.clients.pending++
	h.clients.requestOp(h.opWithCurrentIndex(replica.End, "e0"), func() {
		h.clients.clockOffset += h.window + 2*time.Minute
		h.clients.pending--
	})
	h.advance(h.now + 2*election)
}

// diskStalls is the scenario in which the disk of the leader of an election stalls. In half of the
// runs, this peer also leads the log. The other peers must elect other leaders, and apply updates.
func diskStalls(h *harness) {
	p, a, b := h.leaderAndOthers()
	if h.randomBool(0.5) {
		if p = a; h.randomBool(0.5) {
			p = b
		}
		h.moveElection(p)
	}
	p.diskStalled = true
	until, applied := h.now+20*election, 0
	var more func()
	more = func() {
		if applied++; h.now < until {
			h.clients.proposeUntilKnown(h.newUpdate(h.wallTime()), more)
		}
	}
	more()
	h.waitFor("another leader", 12*election, func() string {
		if q := h.holder(); q == nil || q == p {
			return "e0 has no other leader"
		}
		return ""
	})
	applied = 0
	h.advance(until)
	if applied < 20 {
		h.failf("%d updates are applied while a disk is stalled", applied)
	}
	if p.diskStalled = false; h.randomBool(0.5) { // the disk works again; in half of the runs, the peer also crashes
		p.crash()
		p.start()
		return
	}
	p.startWrite()
}

// TestScenarios_ViolateNoCondition checks that the cluster violates no condition in a run of each
// scenario.
func TestScenarios_ViolateNoCondition(t *testing.T) {
	for name, scenario := range map[string]func(*harness){
		"voter restarts": voterRestarts, "leader receives newer term": leaderReceivesNewerTerm, "follower receives newer term": followerReceivesNewerTerm,
		"ended while partitioned": endedWhilePartitioned, "forgotten while paused": forgottenWhilePaused, "disk lost": diskLost,
		"disk stalls": diskStalls, "directory lost": directoryLost, "log lost": logLost, "second configuration": secondConfiguration,
		"history differs": historyDiffers,
	} {
		t.Run(name, func(t *testing.T) {
			for seed := *first; seed < *first+uint64(*seeds); seed++ {
				_, err := runPlan(t, scenarioPlan(seed, scenario), tracer(t))
				require.NoError(t, err)
			}
		})
	}
}
