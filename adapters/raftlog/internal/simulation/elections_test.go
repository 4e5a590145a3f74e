package simulation

// This file simulates elections. Each process has one candidate in each election.

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

func electionName(i int) string { return fmt.Sprint("e", i) }

// joinElection adds a new candidate of this process to an election.
func (p *peer) joinElection(name string) {
	id := fmt.Sprintf("%s-%d-%x", p.ID, p.process, p.h.rand.Uint32())
	p.candidates[name] = id
	p.core.AddCandidate(name, id, "candidate of "+p.ID)
	p.updateHeads()
}

// resignElection removes the candidate of this process from an election, and adds another candidate soon.
func (p *peer) resignElection(name string) {
	id := p.candidates[name]
	if id == "" {
		return
	}
	p.h.tracef("%s: resigns as %s in %s", p.ID, id, name)
	delete(p.candidates, name)
	p.core.RemoveCandidate(name, id)
	p.updateHeads()
	p.scheduleInput(p.h.duration(0, 300*time.Millisecond), func() { p.joinElection(name) })
}

// requestOp requests an operation again and again until the log contains it, and then calls end.
func (c *clients) requestOp(op replica.Op, end func()) {
	h := c.h
	p := h.likelyLeader()
	if p == nil {
		h.schedule(50*time.Millisecond, func() { c.requestOp(op, end) })
		return
	}
	r := core.Request{Kind: api.KindControl, ID: h.newID(), Op: op, Forward: true}
	r.Token = c.addCall(p, op.Do.String()+" "+op.Election, func(r core.Reply) {
		switch {
		case r.Err == nil || errors.Is(r.Err, api.ErrInvalid) || errors.Is(r.Err, api.ErrStale):
			end()
		case errors.Is(r.Err, api.ErrNotLeader), errors.Is(r.Err, api.ErrRefused), errors.Is(r.Err, api.ErrBusy), errors.Is(r.Err, api.ErrNoSpace), errors.Is(r.Err, api.ErrUnknownOutcome), errors.Is(r.Err, errCrashed):
			h.schedule(h.duration(10*time.Millisecond, 100*time.Millisecond), func() { c.requestOp(op, end) })
		default:
			h.failf("%s: %s %s: %v", p.ID, op.Do, op.Election, r.Err)
		}
	})
	p.runInput(func() { p.core.Propose(r) })
}

// opWithCurrentIndex returns an operation that ends or restarts an election, with the last index that a client can
// have seen.
func (h *harness) opWithCurrentIndex(do replica.Operation, name string) replica.Op {
	return replica.Op{Do: do, Election: name, Through: uint64(len(h.checker.committed)) + 1}
}

// endElection ends an election, unless it is already ended, and then calls the function then after at
// most d.
func (c *clients) endElection(name string, d time.Duration, then func()) {
	h := c.h
	h.tracef("clients: end %s", name)
	wait := func() { h.schedule(h.duration(0, d), then) }
	if c.pending++; h.checker.ended[name] {
		wait()
		return
	}
	c.requestOp(h.opWithCurrentIndex(replica.End, name), wait)
}

// endAndRestart ends an election, and restarts it soon.
func (c *clients) endAndRestart(name string) {
	c.endElection(name, 500*time.Millisecond, func() {
		c.requestOp(c.h.opWithCurrentIndex(replica.Restart, name), func() { c.pending-- })
	})
}

// endAndForget ends an election, and makes the wall clocks jump until the log has forgotten the
// election.
func (c *clients) endAndForget(name string) {
	h := c.h
	var wait func()
	wait = func() {
		if !h.checker.ended[name] {
			c.pending--
			return
		}
		c.clockOffset += h.window + 2*time.Minute
		h.tracef("wall clocks jump to %v", h.wallTime())
		h.schedule(h.duration(0, time.Second), wait)
	}
	c.endElection(name, 100*time.Millisecond, wait)
}
