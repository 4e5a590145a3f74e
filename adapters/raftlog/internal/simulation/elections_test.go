package simulation

// Candidates: one of each process in each election.

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

func electionName(i int) string { return fmt.Sprint("e", i) }

// stand has a new candidate of this process stand.
func (p *peer) stand(name string) {
	id := fmt.Sprintf("%s-%d-%x", p.ID, p.process, p.w.Uint32())
	p.stands[name] = id
	p.core.AddCandidate(name, id, "candidate of "+p.ID)
	p.claim()
}

// resign takes the candidate back, and has another one stand soon.
func (p *peer) resign(name string) {
	id := p.stands[name]
	if id == "" {
		return
	}
	p.w.tracef("%s: resigns as %s in %s", p.ID, id, name)
	delete(p.stands, name)
	p.core.RemoveCandidate(name, id)
	p.claim()
	p.later(p.w.span(0, 300*time.Millisecond), func() { p.stand(name) })
}

// control asks for an op until it is in the log.
func (u *users) control(op entry.Op, end func()) {
	w := u.w
	p := w.someone()
	if p == nil {
		w.after(50*time.Millisecond, func() { u.control(op, end) })
		return
	}
	r := core.Request{Kind: api.KindControl, ID: requestid.From(w.date(), w.Uint64(), w.Uint64()), Op: op, Forward: true}
	r.Token = u.call(p, op.Do.String()+" "+op.Election, func(r core.Reply) {
		switch {
		case r.Err == nil || errors.Is(r.Err, api.ErrInvalid) || errors.Is(r.Err, api.ErrStale):
			end()
		case errors.Is(r.Err, api.ErrNotLeader), errors.Is(r.Err, api.ErrRefused), errors.Is(r.Err, api.ErrBusy), errors.Is(r.Err, api.ErrNoSpace), errors.Is(r.Err, api.ErrUnknownOutcome), errors.Is(r.Err, errCrashed):
			w.after(w.span(10*time.Millisecond, 100*time.Millisecond), func() { u.control(op, end) })
		default:
			w.failf("%s: %s %s: %v", p.ID, op.Do, op.Election, r.Err)
		}
	})
	p.input(func() { p.core.Propose(r) })
}

// op is a request to end an election, or to restart it, that is made now.
func (w *world) op(do entry.Operation, name string) entry.Op {
	return entry.Op{Do: do, Election: name, Through: uint64(len(w.truth.facts)) + 1}
}

// end ends an election for all, unless it is ended already, and calls then after at most d.
func (u *users) end(name string, d time.Duration, then func()) {
	w := u.w
	w.tracef("users: end %s", name)
	wait := func() { w.after(w.span(0, d), then) }
	if u.busy++; w.truth.over[name] {
		wait()
		return
	}
	u.control(w.op(entry.End, name), wait)
}

// endAndRestart ends an election for all, and begins it again.
func (u *users) endAndRestart(name string) {
	u.end(name, 500*time.Millisecond, func() {
		u.control(u.w.op(entry.Restart, name), func() { u.busy-- })
	})
}

// endAndForget ends an election for all, and advances the wall clocks until it is forgotten.
func (u *users) endAndForget(name string) {
	w := u.w
	var wait func()
	wait = func() {
		if !w.truth.over[name] {
			u.busy--
			return
		}
		u.lapsed += w.window + 2*time.Minute
		w.tracef("wall clocks jump to %v", w.date())
		w.after(w.span(0, time.Second), wait)
	}
	u.end(name, 100*time.Millisecond, wait)
}
