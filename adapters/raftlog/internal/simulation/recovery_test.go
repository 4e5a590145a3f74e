package simulation

// This file checks the conditions that the cluster must meet some time after the faults have ended.

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
)

// recoveryLimit is the time in which the cluster must recover after the faults have ended.
const recoveryLimit = 20 * time.Second

// recoverCluster ends all faults, and checks that the cluster recovers and remains healthy.
func (h *harness) recoverCluster() {
	h.recovering = true
	h.tracef("the faults end")
	h.net.reset()
	clear(h.net.cuts)
	clear(h.net.held)
	for _, p := range h.peers {
		p.diskDelay, p.offset = 0, 0
		p.disk.FailAt(0)
		p.setDiskFull(false)
		p.resumeProcess()
		p.start()
	}
	h.advance(h.now + 2*h.net.lateness) // wait for the frames in flight
	h.waitFor("recovery", recoveryLimit, h.findProblem)
	h.checkLearners()
	h.fillIDs()
	// Check that the cluster remains healthy after it has recovered.
	l := h.leader()
	term, holders := l.observed.term, map[string]holder{}
	for i := range h.elections {
		holders[electionName(i)] = h.checker.holders[electionName(i)]
	}
	done, read := false, 0
	up := h.clients.nextUpdate()
	for up.index != 0 || up.unknown {
		up = h.clients.nextUpdate()
	}
	up.id = h.newID()
	h.clients.proposeUntilKnown(up, func() { done = true })
	members := h.membersKnownTo(l)
	for _, p := range members {
		h.clients.readLinearizable(p, func() { read++ })
	}
	h.advance(h.now + time.Second)
	switch {
	case !done || up.index == 0:
		h.failf("without faults an update is not applied")
	case read != len(members):
		h.failf("without faults %d of %d reads have replies", read, len(members))
	case h.leader() != l || l.observed.term != term:
		h.failf("without faults the leader of term %d, %s, does not remain", term, l.ID)
	}
	h.waitFor("health at the end", recoveryLimit, h.findProblem)
	for name, held := range holders {
		if h.checker.holders[name] != held {
			h.failf("without faults %v does not remain the leader of %s: %v", held, name, h.checker.holders[name])
		}
	}
	for _, u := range h.clients.done {
		h.clients.checkAcknowledged(l, u, u.index)
	}
}

// fillIDs proposes updates until the leader stores its maximum number of request IDs and rejects updates.
// Then it lets the wall clocks advance, and checks that the leader removes the IDs, although no updates
// advance the clock of the log.
func (h *harness) fillIDs() {
	if h.maxIDs == 0 {
		return
	}
	before := h.checker.counts["full"]
	var more func()
	more = func() {
		if h.checker.counts["full"] == before {
			h.clients.proposeUntilKnown(h.newUpdate(h.wallTime()), more)
		}
	}
	more()
	h.waitFor("the maximum number of IDs", recoveryLimit, func() string {
		if h.checker.counts["full"] == before {
			return fmt.Sprintf("%d are stored", h.leader().core.Status().IDs)
		}
		return h.findProblem()
	})
	l := h.leader()
	if n := l.core.Status().IDs; n < l.maxIDs {
		h.failf("%s rejects an update because of its ID, stores %d IDs, and may store %d", l.ID, n, l.maxIDs)
	}
	h.clients.clockOffset += 70 * time.Second
	h.waitFor("the clock of the log", recoveryLimit, func() string {
		if lag := h.wallTime().Sub(l.core.Replica().Clock); lag > time.Minute {
			return fmt.Sprintf("it lags by %v, with %d IDs", lag, l.core.Status().IDs)
		}
		return ""
	})
	h.clients.clockOffset += 20 * time.Minute // more than the window, the slack, and how far an ID may be in the future
	h.waitFor("space for IDs", recoveryLimit, func() string {
		if n := l.core.Status().IDs; n > 0 {
			return fmt.Sprintf("%d are stored", n)
		}
		return h.findProblem()
	})
	h.advance(h.now + election) // the wall clocks have jumped, so wait until the peers have received each other's new times
}

// membersKnownTo returns the members, according to the leader l, that were not stopped permanently.
func (h *harness) membersKnownTo(l *peer) []*peer {
	var all []*peer
	for _, m := range l.core.Replica().Members.All() {
		if p := h.peerByID(m.ID); !p.stopped {
			all = append(all, p)
		}
	}
	return all
}

// findProblem returns a description of why the cluster is not healthy, or "" if it is.
func (h *harness) findProblem() string {
	leaders := h.peersWhere(func(p *peer) bool { return p.up && p.observed.isLeader })
	if len(leaders) != 1 {
		return fmt.Sprintf("%d leaders", len(leaders))
	}
	l := leaders[0]
	if !l.observed.ready || l.observed.lease <= l.Now() {
		return l.ID + " leads without a lease"
	}
	for _, token := range slices.Sorted(maps.Keys(h.clients.calls)) {
		c := h.clients.calls[token]
		return fmt.Sprintf("%s of %v, at %s, has no reply", c.what, c.began, c.p.ID)
	}
	if h.clients.pending > 0 {
		return fmt.Sprintf("%d clients wait", h.clients.pending)
	}
	state := l.core.Replica()
	if state.Members.Joint() {
		return "a change is not complete"
	}
	members := h.membersKnownTo(l)
	for _, p := range members {
		s := p.core.Status()
		switch {
		case s.Applied != state.Index || p.stateMachine.index != state.Index:
			return fmt.Sprintf("%s has applied %d, %s %d", p.ID, s.Applied, l.ID, state.Index)
		case p.core.Replica().Sum() != state.Sum():
			return fmt.Sprintf("the replica of %s differs from that of %s", p.ID, l.ID)
		case p.stateMachine != l.stateMachine:
			return fmt.Sprintf("the state machine of %s differs from that of %s", p.ID, l.ID)
		case s.Lease <= p.Now():
			return p.ID + " has no lease"
		case s.Leader.ID != l.ID && s.Role != core.Leader:
			return p.ID + " does not know the leader"
		}
	}
	for i := range h.elections {
		name := electionName(i)
		e := state.Elections.Get(name)
		if e.Ended { // every client that ended it has restarted it, and no delayed request may end it again
			return name + " is ended"
		}
		for _, p := range members {
			if p.candidates[name] == "" || e.Position(p.candidates[name]) < 0 {
				return fmt.Sprintf("%s has no candidate in %s", p.ID, name)
			}
		}
		for _, c := range e.Candidates {
			if !slices.ContainsFunc(members, func(p *peer) bool { return p.raft == c.Peer && p.candidates[name] == c.ID }) {
				return fmt.Sprintf("%s is a candidate in %s, and belongs to no running process", c.ID, name)
			}
		}
		if !slices.ContainsFunc(members, func(p *peer) bool { _, ok := p.holdsElection(name); return ok }) {
			return name + " has no leader"
		}
	}
	return ""
}
