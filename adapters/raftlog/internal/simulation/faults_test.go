package simulation

// This file injects faults at random times.

import (
	"math/rand/v2"
	"slices"
	"time"
)

// faultRates contains the mean time between two events of each kind. A zero means that the event does
// not happen.
type faultRates struct {
	badNetwork                                                 time.Duration // changes of network delays and losses
	partition, pause, crash, blackout, slowDisk, wrongClock    time.Duration
	handOver, snapshot, resign, endElection, clockJump, change time.Duration
	badDisk, lostDisk, learner, fullDisk, lostDirectory        time.Duration
}

// randomPlan returns the plan of a run with random faults, which the seed determines.
func randomPlan(seed uint64) plan {
	r := rand.New(rand.NewPCG(seed, 0xab1e))
	// Each kind of fault occurs in most runs: rarely in some runs, and often in others.
	mean := func(average time.Duration) time.Duration {
		if r.IntN(4) == 0 {
			return 0
		}
		return time.Duration(float64(average) * (0.4 + 1.6*r.Float64()))
	}
	p := plan{
		seed: seed, voters: 3 + r.IntN(3), faultTime: 16 * time.Second, window: 7 * time.Hour, syncs: true,
		elections: 2 + r.IntN(2), changeMembers: r.IntN(2) == 0, expireIDs: r.IntN(3) == 0,
		faults: faultRates{
			badNetwork: mean(2 * time.Second), partition: mean(1500 * time.Millisecond), pause: mean(time.Second),
			crash: mean(2 * time.Second), blackout: mean(20 * time.Second), slowDisk: mean(3 * time.Second),
			wrongClock: mean(4 * time.Second), handOver: mean(2 * time.Second), snapshot: mean(time.Second),
			resign: mean(time.Second), endElection: mean(8 * time.Second),
		},
	}
	if p.expireIDs {
		p.window, p.faults.clockJump = 2*time.Second, 3*time.Second
	}
	if p.changeMembers {
		p.faults.change = time.Second
	}
	p.faults.badDisk = mean(3 * time.Second)
	if p.expireIDs && r.IntN(2) == 0 {
		p.maxIDs = 10 + r.IntN(40)
	}
	p.faults.lostDisk = mean(2 * time.Second)
	p.faults.lostDirectory = mean(2 * time.Second)
	if r.IntN(3) == 0 {
		p.faults.learner = 2 * time.Second
	}
	p.faults.fullDisk = mean(4 * time.Second)
	return p
}

// leasePlan returns the plan of a run with few requests and many faults. Leases can be violated when
// one fault follows another quickly.
func leasePlan(seed uint64) plan {
	r := rand.New(rand.NewPCG(seed, 0x1ea5e))
	mean := func(average time.Duration) time.Duration {
		if r.IntN(3) == 0 {
			return 0
		}
		return time.Duration(float64(average) * (0.3 + 1.7*r.Float64()))
	}
	p := plan{
		seed: seed, voters: 3 + 2*r.IntN(2), faultTime: 16 * time.Second, window: 7 * time.Hour, syncs: true,
		elections: 2, noClients: true,
		faults: faultRates{
			badNetwork: mean(time.Second), partition: mean(300 * time.Millisecond), pause: mean(400 * time.Millisecond),
			crash: mean(600 * time.Millisecond), blackout: mean(10 * time.Second), slowDisk: mean(time.Second),
			handOver: mean(400 * time.Millisecond), resign: mean(700 * time.Millisecond), endElection: mean(2 * time.Second),
		},
	}
	p.faults.badDisk = mean(time.Second)
	return p
}

// injectFaults lets the cluster run with faults, for the time that the plan says.
func (h *harness) injectFaults() {
	c := &h.clients
	h.repeatRandomly(h.faults.badNetwork, h.changeNetwork)
	h.repeatRandomly(h.faults.partition, h.partitionNetwork)
	h.repeatRandomly(h.faults.pause, func() {
		if p := h.faultTarget(); p != nil {
			p.pause(h.duration(time.Millisecond, 3*election))
		}
	})
	h.repeatRandomly(h.faults.crash, func() {
		if p := h.faultTarget(); p != nil {
			p.crashFor(h.duration(time.Millisecond, time.Second))
		}
	})
	h.repeatRandomly(h.faults.blackout, func() {
		for _, p := range h.peers {
			p.crashFor(h.duration(time.Millisecond, 300*time.Millisecond))
		}
	})
	h.repeatRandomly(h.faults.slowDisk, func() {
		if p := h.faultTarget(); p != nil {
			p.diskDelay = h.duration(2*time.Millisecond, 150*time.Millisecond)
			h.tracef("%s: a write takes up to %v", p.ID, p.diskDelay)
			h.schedule(h.duration(0, 2*time.Second), func() { p.diskDelay = 0 })
		}
	})
	h.repeatRandomly(h.faults.badDisk, func() {
		if p := h.faultTarget(); p != nil {
			// Let one of the next operations fail. Most of them are writes and syncs of the log or of a
			// snapshot.
			p.disk.FailAt(p.disk.Ops() + 1 + h.rand.IntN(8))
		}
	})
	h.repeatRandomly(h.faults.fullDisk, func() {
		if p := h.faultTarget(); p != nil && !p.diskFull {
			p.fillDisk(h.duration(0, 4*time.Second))
		}
	})
	h.repeatRandomly(h.faults.lostDisk, h.loseDisk)
	h.repeatRandomly(h.faults.lostDirectory, h.loseVoterDirectory)
	h.repeatRandomly(h.faults.learner, h.addLearner)
	h.repeatRandomly(h.faults.wrongClock, func() {
		if p := h.faultTarget(); p != nil {
			p.offset = h.duration(-10*time.Minute, 10*time.Minute)
			if h.expireIDs && p.offset > time.Second {
				p.offset = time.Second // a leader whose clock is further ahead would make the IDs of clients stale
			}
			h.tracef("%s: wall clock is wrong by %v", p.ID, p.offset)
			h.schedule(h.duration(0, 2*time.Second), func() { p.offset = 0 })
		}
	})
	h.repeatRandomly(h.faults.handOver, func() {
		if p := h.leader(); p != nil {
			h.tracef("%s: hands over", p.ID)
			h.checker.counts["handOvers"]++
			p.runInput(p.core.HandOver)
		}
	})
	h.repeatRandomly(h.faults.snapshot, func() {
		if p := h.likelyLeader(); p != nil {
			p.runInput(p.core.RequestSnapshot)
		}
	})
	h.repeatRandomly(h.faults.resign, func() {
		if p := h.likelyLeader(); p != nil {
			name := electionName(h.rand.IntN(h.elections))
			p.runInput(func() { p.resignElection(name) })
		}
	})
	h.repeatRandomly(h.faults.endElection, func() {
		name := electionName(h.rand.IntN(h.elections))
		if (h.expireIDs || h.noClients) && h.randomBool(0.3) { // endAndForget makes request IDs expire
			c.endAndForget(name)
			return
		}
		c.endAndRestart(name)
	})
	h.repeatRandomly(h.faults.clockJump, func() {
		c.clockOffset += h.duration(30*time.Second, 2*time.Minute)
		h.tracef("wall clocks jump to %v", h.wallTime())
	})
	if h.faults.change > 0 {
		h.schedule(h.faults.change, c.runChanges)
	}
	h.advance(h.faultTime / 2)
	h.removeLearners()
	h.advance(h.now + h.faultTime/2)
}

// repeatRandomly calls do at random times with the given mean interval, until the faults end.
func (h *harness) repeatRandomly(mean time.Duration, do func()) {
	if mean == 0 {
		return
	}
	var again func()
	again = func() {
		if h.recovering {
			return
		}
		do()
		h.schedule(time.Duration(h.rand.ExpFloat64()*float64(mean)), again)
	}
	h.schedule(time.Duration(h.rand.ExpFloat64()*float64(mean)), again)
}

// faultTarget returns the running peer that the next fault hits. It is random, but often the leader of
// the log or of an election.
func (h *harness) faultTarget() *peer {
	if h.randomBool(0.4) {
		if p := h.leader(); p != nil {
			return p
		}
	}
	if h.randomBool(0.4) {
		if p := h.holder(); p != nil {
			return p
		}
	}
	return h.anyOf(h.peersWhere(func(p *peer) bool { return p.up }))
}

// holder returns the peer whose candidate leads election e0, or nil if no candidate leads.
func (h *harness) holder() *peer {
	for _, p := range h.peers {
		if _, ok := p.holdsElection("e0"); ok {
			return p
		}
	}
	return nil
}

// leader returns the running peer that leads the log in the newest term, or nil.
func (h *harness) leader() *peer {
	var l *peer
	for _, p := range h.peers {
		if p.up && p.observed.isLeader && (l == nil || p.observed.term > l.observed.term) {
			l = p
		}
	}
	return l
}

// crashFor crashes a peer, and starts it again when d has passed.
func (p *peer) crashFor(d time.Duration) {
	if p.up {
		p.crash()
		p.h.schedule(d, p.start)
	}
}

// changeNetwork chooses new random delays and losses of the network.
func (h *harness) changeNetwork() {
	n := &h.net
	n.reset()
	if h.randomBool(0.3) {
		return
	}
	n.drop, n.duplicate, n.late = 0.1*h.rand.Float64()*h.rand.Float64(), 0.1*h.rand.Float64(), 0.02*h.rand.Float64()
	n.jitter = h.duration(time.Millisecond, 20*time.Millisecond)
	h.tracef("network: %+v", *n)
}

// partitionNetwork cuts random connections for a random time.
func (h *harness) partitionNetwork() {
	d := h.duration(20*time.Millisecond, 1200*time.Millisecond)
	a := h.faultTarget()
	if a == nil {
		return
	}
	others := h.peersWhere(func(p *peer) bool { return p != a && !p.stopped })
	b := h.anyOf(others)
	if b == nil {
		return
	}
	kind := h.rand.IntN(6)
	h.tracef("network: partition %d of %s, %s for %v", kind, a.ID, b.ID, d)
	switch kind {
	case 0: // no peer receives frames of peer a
		for _, p := range others {
			h.cutFor(a, p, d)
		}
	case 1: // peer a receives no frames
		for _, p := range others {
			h.cutFor(p, a, d)
		}
	case 2:
		for _, p := range others {
			h.cutFor(a, p, d)
			h.cutFor(p, a, d)
		}
	case 3:
		h.cutFor(a, b, d)
	case 4:
		h.cutFor(a, b, d)
		h.cutFor(b, a, d)
	case 5: // the network is divided into two halves
		all := append(slices.Clone(others), a)
		h.rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for _, p := range all[:len(all)/2] {
			for _, q := range all[len(all)/2:] {
				h.cutFor(p, q, d)
				h.cutFor(q, p, d)
			}
		}
	}
}
