package simulation

// This file simulates changes of the voters, which clients request.

import (
	"errors"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
)

// runChanges replaces some of the voters at random, one change after another.
func (c *clients) runChanges() {
	h := c.h
	if h.recovering {
		return
	}
	later := func() { h.schedule(h.duration(500*time.Millisecond, 5*time.Second), c.runChanges) }
	from := h.leader()
	if c.changing || from == nil || from.paused || !from.observed.ready {
		later()
		return
	}
	var voters []*peer
	for _, v := range from.core.Replica().Members.Voters {
		voters = append(voters, h.peerByID(v.ID))
	}
	if from.core.Replica().Members.Joint() || slices.ContainsFunc(voters, func(p *peer) bool { return p.stopped }) {
		later() // the last change is in progress, or the leader does not know yet that it is complete
		return
	}
	size := 3 + h.rand.IntN(3)
	var next []*peer
	for _, i := range h.rand.Perm(len(voters)) {
		next = append(next, voters[i])
	}
	added := h.rand.IntN(3)
	next = next[:min(len(next), max(size-added, 1))]
	for len(next) < size {
		p := h.newPeer()
		p.createFromSnapshot(from, from.core.Replica().Members.Membership().Voters)
		h.schedule(h.duration(0, 200*time.Millisecond), p.start)
		next = append(next, p)
	}
	var to []api.Peer
	for _, p := range next {
		to = append(to, p.Peer)
	}
	h.tracef("clients: change to %v", to)
	c.pending++
	c.changing = true
	h.schedule(h.duration(0, time.Second), func() {
		c.changeVoters(h.newID(), to, func() {
			c.pending--
			c.changing = false
			h.checker.counts["changes"]++
			for _, p := range voters {
				if !slices.Contains(to, p.Peer) {
					h.schedule(h.duration(0, 3*time.Second), func() { c.retirePeer(p) })
				}
			}
			later()
		})
	})
}

func (h *harness) newID() api.RequestID {
	return api.RequestIDFrom(h.wallTime(), h.rand.Uint64(), h.rand.Uint64())
}

// retirePeer stops a peer permanently, because the cluster has removed it or does not need it any more.
func (c *clients) retirePeer(p *peer) {
	if p.stopped {
		return
	}
	c.h.tracef("%s: is stopped permanently", p.ID)
	p.crash()
	p.stopped = true
}

// changeVoters requests a change of the voters again and again until it is complete, and then calls
// end.
func (c *clients) changeVoters(id api.RequestID, to []api.Peer, end func()) {
	h := c.h
	again := func(id api.RequestID) {
		h.schedule(h.duration(10*time.Millisecond, 200*time.Millisecond), func() { c.changeVoters(id, to, end) })
	}
	p := h.likelyLeader()
	if p == nil {
		again(id)
		return
	}
	r := core.Request{Kind: api.KindConfig, ID: id, Voters: to, Forward: h.randomBool(0.5)}
	r.Token = c.addCall(p, "change", func(r core.Reply) {
		h.tracef("clients: change %v: %s: %d %v", id, p.ID, r.Index, r.Err)
		switch {
		case r.Err == nil:
			if f := h.checker.entryAt(r.Index); f.kind != api.KindConfig {
				h.failf("%s: the change is reported as completed by entry %d, which is %+v", p.ID, r.Index, f)
			}
			end()
		case errors.Is(r.Err, api.ErrStale), errors.Is(r.Err, api.ErrChanging):
			again(h.newID())
		case errors.Is(r.Err, api.ErrNotLeader), errors.Is(r.Err, api.ErrRefused), errors.Is(r.Err, api.ErrBusy), errors.Is(r.Err, api.ErrNoSpace), errors.Is(r.Err, api.ErrUnknownOutcome), errors.Is(r.Err, errCrashed):
			again(id)
		case errors.Is(r.Err, api.ErrInvalid) && (c.isCurrent(to) || c.containsRemoved(to)):
			// The change is not necessary or not possible any more: the log has applied an earlier attempt
			// with another ID, or another change.
			end()
		default:
			h.failf("%s: change to %v: %v", p.ID, to, r.Err)
		}
	})
	p.runInput(func() { p.core.Propose(r) })
}

// containsRemoved reports whether the cluster has removed one of the given peers.
func (c *clients) containsRemoved(to []api.Peer) bool {
	return slices.ContainsFunc(c.h.peers, func(p *peer) bool {
		return p.up && slices.ContainsFunc(to, func(v api.Peer) bool { return p.core.Replica().Members.IsRemoved(v.ID) })
	})
}

// isCurrent reports whether the given peers are the voters according to a running peer.
func (c *clients) isCurrent(to []api.Peer) bool {
	for _, p := range c.h.peers {
		if !p.up {
			continue
		}
		m := p.core.Replica().Members
		same := len(m.Voters) == len(to) && !m.Joint()
		for _, v := range m.Voters {
			same = same && slices.Contains(to, api.Peer{ID: v.ID, Addr: v.Addr})
		}
		if same {
			return true
		}
	}
	return false
}
