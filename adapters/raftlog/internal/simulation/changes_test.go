package simulation

// Changes of the peers.

import (
	"errors"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// changer replaces peers, one change after the other.
func (u *users) changer() {
	w := u.w
	if w.calm {
		return
	}
	later := func() { w.after(w.span(500*time.Millisecond, 5*time.Second), u.changer) }
	from := w.leader()
	if u.changing || from == nil || from.paused || !from.said.ready {
		later()
		return
	}
	var voters []*peer
	for _, v := range from.core.Replica().Members.Voters {
		voters = append(voters, w.peer(v.ID))
	}
	if from.core.Replica().Members.Joint() || slices.ContainsFunc(voters, func(p *peer) bool { return p.gone }) {
		later() // it does not know yet
		return
	}
	size := 3 + w.IntN(3)
	var next []*peer
	for _, i := range w.Perm(len(voters)) {
		next = append(next, voters[i])
	}
	added := w.IntN(3)
	next = next[:min(len(next), max(size-added, 1))]
	for len(next) < size {
		p := w.newPeer()
		p.join(from, from.core.Replica().Members.Membership().Voters)
		w.after(w.span(0, 200*time.Millisecond), p.start)
		next = append(next, p)
	}
	var to []api.Peer
	for _, p := range next {
		to = append(to, p.Peer)
	}
	w.tracef("users: change to %v", to)
	u.busy++
	u.changing = true
	w.after(w.span(0, time.Second), func() {
		u.change(w.newID(), to, func() {
			u.busy--
			u.changing = false
			w.truth.changes++
			for _, p := range voters {
				if !slices.Contains(to, p.Peer) {
					w.after(w.span(0, 3*time.Second), func() { u.retire(p) })
				}
			}
			later()
		})
	})
}

func (w *world) newID() requestid.ID { return requestid.From(w.date(), w.Uint64(), w.Uint64()) }

// retire stops a peer for ever.
func (u *users) retire(p *peer) {
	if p.gone {
		return
	}
	u.w.tracef("%s: is taken away", p.ID)
	p.crash()
	p.gone = true
}

// change asks for a change until it is complete.
func (u *users) change(id requestid.ID, to []api.Peer, end func()) {
	w := u.w
	again := func(id requestid.ID) {
		w.after(w.span(10*time.Millisecond, 200*time.Millisecond), func() { u.change(id, to, end) })
	}
	p := w.someone()
	if p == nil {
		again(id)
		return
	}
	r := core.Request{Kind: api.KindConfig, ID: id, Voters: to, Forward: w.chance(0.5)}
	r.Token = u.call(p, "change", func(r core.Reply) {
		w.tracef("users: change %v: %s: %d %v", id, p.ID, r.Index, r.Err)
		switch {
		case r.Err == nil:
			if f := w.truth.at(r.Index); f.kind != api.KindConfig {
				w.failf("%s: the change is said to be complete with entry %d, which is %+v", p.ID, r.Index, f)
			}
			end()
		case errors.Is(r.Err, api.ErrStale), errors.Is(r.Err, api.ErrChanging):
			again(w.newID())
		case errors.Is(r.Err, api.ErrNotLeader), errors.Is(r.Err, api.ErrRefused), errors.Is(r.Err, api.ErrBusy), errors.Is(r.Err, api.ErrNoSpace), errors.Is(r.Err, api.ErrUnknownOutcome), errors.Is(r.Err, errCrashed):
			again(id)
		case errors.Is(r.Err, api.ErrInvalid) && (u.isDone(to) || u.outdated(to)): // under an ID of before, or another change came first
			end()
		default:
			w.failf("%s: change to %v: %v", p.ID, to, r.Err)
		}
	})
	p.input(func() { p.core.Propose(r) })
}

// outdated tells whether one of them was removed.
func (u *users) outdated(to []api.Peer) bool {
	return slices.ContainsFunc(u.w.peers, func(p *peer) bool {
		return p.up && slices.ContainsFunc(to, func(v api.Peer) bool { return p.core.Replica().Members.IsRemoved(v.ID) })
	})
}

// isDone tells whether some peer knows these to be the voters.
func (u *users) isDone(to []api.Peer) bool {
	for _, p := range u.w.peers {
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
