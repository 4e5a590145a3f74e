package simulation

// This file simulates learners that start and stop.

import "time"

// absentTime is longer than the time after which the leader removes a silent learner.
const absentTime = 125 * time.Second

// skipTime advances all clocks by d, and nothing else happens in that time.
func (h *harness) skipTime(d time.Duration) {
	h.tracef("nothing happens for %v", d)
	if h.lostDisk != nil {
		h.replaceLostDisk(h.lostDisk.p)
	}
	for i := range h.events {
		h.events[i].at += d
	}
	h.now += d
}

// addLearner starts a new learner, and stops it later, temporarily or permanently.
func (h *harness) addLearner() {
	l := h.leader()
	running := 0
	for _, p := range h.peers {
		if p.learner && !p.stopped {
			running++
		}
	}
	if l == nil || !l.observed.ready || running >= 2 {
		return
	}
	p := h.newPeer()
	p.learner = true
	h.tracef("%s: joins as a learner", p.ID)
	p.createFromSnapshot(l, l.core.Replica().Members.Membership().Voters)
	p.start()
	h.schedule(h.duration(time.Second, 8*time.Second), func() {
		switch {
		case h.recovering:
		case h.randomBool(0.5):
			h.clients.retirePeer(p)
		default:
			p.crashFor(h.duration(time.Millisecond, 4*time.Second))
		}
	})
}

// removeLearners stops some learners, and lets so much time pass that the leader removes them from the
// configuration.
func (h *harness) removeLearners() {
	if h.faults.learner == 0 {
		return
	}
	for _, p := range h.peers {
		if p.learner && h.randomBool(0.5) {
			p.crashFor(h.duration(0, 2*time.Second))
		}
	}
	h.advance(h.now + h.duration(0, 2*election))
	h.skipTime(absentTime)
}

// checkLearners checks that the leader removes learners that do not run from the configuration, and
// admits a learner again when it returns.
func (h *harness) checkLearners() {
	if h.faults.learner == 0 {
		return
	}
	var returning *peer
	for _, p := range h.peers {
		_, member := h.leader().core.Replica().Members.Find(p.raft)
		switch {
		case !p.learner || p.stopped:
		case member:
			returning = p
		default:
			// The learner may know only peers that have stopped. So restart it with the current voters
			// as its configured peers.
			p.crash()
			p.start()
		}
	}
	if returning != nil {
		returning.crash()
	}
	h.advance(h.now + 3*election) // until the engine considers the silent learner inactive
	h.skipTime(absentTime)
	h.waitFor("stopped learners are removed", recoveryLimit, func() string {
		l := h.leader()
		if l == nil {
			return "no leader"
		}
		for _, c := range l.core.Replica().Members.Learners {
			if !h.peerByID(c.ID).up {
				return c.ID + " is still a learner"
			}
		}
		return ""
	})
	if returning != nil {
		returning.start()
	}
	h.waitFor("returning learners are admitted", recoveryLimit, func() string {
		if l := h.leader(); l != nil {
			for _, p := range h.peers {
				if _, member := l.core.Replica().Members.Find(p.raft); p.learner && !p.stopped && !member {
					return p.ID + " is not admitted"
				}
			}
		}
		return h.findProblem()
	})
}
