package simulation

// Those who use the cluster: clients with updates, readers, and who asks what of the core.

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

var errCrashed = errors.New("the process has crashed")

// users are all of them together.
type users struct {
	w        *world
	lapsed   time.Duration // by which calendars are ahead of the time that has passed
	token    uint64
	calls    map[uint64]call
	answered map[uint64]bool
	done     []*update // the newest that were acknowledged
	busy     int       // who is not at an end
	changing bool
}

// call is a request that a process has taken and must answer.
type call struct {
	p       *peer
	process int
	began   time.Duration
	what    string
	done    func(core.Reply)
}

func (u *users) init(w *world) {
	u.w, u.calls, u.answered = w, map[uint64]call{}, map[uint64]bool{}
	if w.idle {
		return
	}
	for range 3 {
		w.after(w.span(0, 300*time.Millisecond), u.client)
	}
	w.after(w.span(0, 300*time.Millisecond), u.reader)
}

// call registers a call and returns its token.
func (u *users) call(p *peer, what string, done func(core.Reply)) uint64 {
	u.token++
	u.calls[u.token] = call{p, p.process, u.w.now, what, done}
	return u.token
}

// reply takes an answer.
func (u *users) reply(p *peer, r core.Reply) {
	c, known := u.calls[r.Token]
	if !known || c.p != p || c.process != p.process {
		u.w.failf("%s answers call %d (%+v), which was not asked of it or was answered before: %t", p.ID, r.Token, r, u.answered[r.Token])
	}
	delete(u.calls, r.Token)
	u.answered[r.Token] = true
	u.w.mix(nil, r.Token, r.Index)
	c.done(r)
}

// crashed answers what nobody will answer.
func (u *users) crashed(p *peer) {
	for _, token := range slices.Sorted(maps.Keys(u.calls)) {
		if c := u.calls[token]; c.p == p {
			delete(u.calls, token)
			c.done(core.Reply{Token: token, Err: errCrashed})
		}
	}
}

// someone returns a peer that is up, more often than not one that says that it leads; nil if
// there is none.
func (w *world) someone() *peer {
	var up []*peer
	for _, p := range w.peers {
		if p.up && !p.paused {
			up = append(up, p)
		}
	}
	if len(up) == 0 {
		return nil
	}
	if w.chance(0.6) {
		if i := slices.IndexFunc(up, func(p *peer) bool { return p.said.leads }); i >= 0 {
			return up[i]
		}
	}
	return up[w.IntN(len(up))]
}

// update is what a client wants applied.
type update struct {
	id       requestid.ID
	data     []byte
	index    uint64 // 0: not known to be applied
	attempts int
	unsure   bool // some attempt may yet succeed
	others   *int // how many updates with other data have the same ID
}

// client proposes updates, one after the other.
func (u *users) client() {
	w := u.w
	if w.calm {
		return
	}
	up := u.next()
	u.busy++
	u.attempt(up, func() {
		u.busy--
		w.after(w.span(0, 60*time.Millisecond), u.client)
	})
}

// next draws an update: a new one, one of before, or other data under an ID of before.
func (u *users) next() *update {
	w := u.w
	if len(u.done) > 0 && w.chance(0.15) {
		old := u.done[w.IntN(len(u.done))]
		if w.chance(0.3) {
			*old.others++
			return &update{id: old.id, data: fmt.Appendf(nil, "other %d", w.Uint64()), others: old.others, unsure: true}
		}
		return old
	}
	made := w.date()
	switch w.IntN(40) {
	case 0:
		made = made.Add(-w.window - w.span(0, time.Hour))
	case 1:
		made = made.Add(w.span(14*time.Minute, 20*time.Minute))
	case 2:
		made = made.Add(-w.window + w.span(-time.Second, time.Second))
	}
	return w.newUpdate(made)
}

func (w *world) newUpdate(made time.Time) *update {
	return &update{id: requestid.From(made, w.Uint64(), w.Uint64()), data: append([]byte("update"), make([]byte, w.IntN(200))...), others: new(int)}
}

// attempt asks some peer, and others if it does not know, until the outcome is certain.
func (u *users) attempt(up *update, end func()) {
	w := u.w
	p := w.someone()
	if p == nil || up.attempts > 40 && !w.calm {
		if p == nil && !up.unsure && up.attempts == 0 || up.attempts > 40 {
			end()
			return
		}
		w.after(w.span(10*time.Millisecond, 100*time.Millisecond), func() { u.attempt(up, end) })
		return
	}
	up.attempts++
	over := false // this attempt, for the client
	again := func() {
		if !over {
			over = true
			w.after(w.span(0, 30*time.Millisecond), func() { u.attempt(up, end) })
		}
	}
	forward := w.chance(0.4)
	r := core.Request{Kind: api.KindState, ID: up.id, Data: up.data, Forward: forward}
	first, applied := up.attempts == 1 && !up.unsure, up.index
	up.unsure = true
	r.Token = u.call(p, "update", func(r core.Reply) {
		switch {
		case r.Err == nil:
			u.acknowledged(p, up, r.Index)
		case errors.Is(r.Err, api.ErrRequestIDReused):
			if *up.others == 0 {
				w.failf("%s: update %v: %v", p.ID, up.id, r.Err)
			}
			w.truth.reused++
		case errors.Is(r.Err, api.ErrStale), errors.Is(r.Err, api.ErrFuture):
			if first && !forward {
				w.truth.refused[up.id] = r.Err.Error()
			}
		case errors.Is(r.Err, api.ErrTooManyIDs) && w.maxIDs > 0:
			w.truth.full++
			// One that leads no more, and does not know, need not know the update either.
			if applied != 0 && !forward && p.said.term >= w.truth.at(applied).in {
				w.failf("%s: update %v was applied by entry %d, and is now refused: %v", p.ID, up.id, applied, r.Err)
			}
			if first && !forward {
				w.truth.refused[up.id] = r.Err.Error()
			}
		case errors.Is(r.Err, api.ErrNotLeader), errors.Is(r.Err, api.ErrRefused), errors.Is(r.Err, api.ErrBusy), errors.Is(r.Err, api.ErrNoSpace):
			if first && !forward && *up.others == 0 {
				up.unsure = false
			}
			again()
			return
		case errors.Is(r.Err, api.ErrUnknownOutcome), errors.Is(r.Err, errCrashed):
			again()
			return
		default:
			w.failf("%s: update %v: %v", p.ID, up.id, r.Err)
		}
		if !over {
			over = true
			end()
		}
	})
	p.input(func() { p.core.Propose(r) })
	w.after(w.span(100*time.Millisecond, 600*time.Millisecond), again)
}

// acknowledged checks what a peer says is applied.
func (u *users) acknowledged(p *peer, up *update, index uint64) {
	f := u.w.truth.at(index)
	switch {
	case f.kind != api.KindState || f.id != up.id || f.skipped || f.sum != entry.Sum(up.data):
		u.w.failf("%s: update %v is said to be applied by entry %d, which is %+v", p.ID, up.id, index, f)
	case up.index != 0 && up.index != index:
		u.w.failf("%s: update %v is said to be applied by entry %d, and was by %d", p.ID, up.id, index, up.index)
	case p.machine.index < index:
		u.w.failf("%s: update %v is said to be applied by entry %d, and this peer's state machine is at %d", p.ID, up.id, index, p.machine.index)
	}
	if up.index == 0 {
		up.index = index
		if u.done = append(u.done, up); len(u.done) > 40 {
			u.done = u.done[1:]
		}
	}
}

// reader reads at some peer, and must see all that was committed anywhere when it began.
func (u *users) reader() {
	w := u.w
	if w.calm {
		return
	}
	if p := w.someone(); p != nil {
		u.read(p, nil)
	}
	w.after(w.span(0, 80*time.Millisecond), u.reader)
}

func (u *users) read(p *peer, ok func()) {
	w := u.w
	p.input(func() {
		if !p.up {
			return
		}
		floor := w.truth.last()
		token := u.call(p, "read", func(r core.Reply) {
			switch {
			case r.Err != nil && !errors.Is(r.Err, api.ErrBusy) && !errors.Is(r.Err, api.ErrNoSpace) && !errors.Is(r.Err, api.ErrRefused) && !errors.Is(r.Err, errCrashed):
				w.failf("%s: read: %v", p.ID, r.Err)
			case r.Err != nil:
			case r.Index < floor || p.machine.index < floor:
				w.failf("%s: read at %d, state machine at %d; %d was committed when it began", p.ID, r.Index, p.machine.index, floor)
			default:
				w.truth.reads++
				if ok != nil {
					ok()
				}
			}
		})
		p.core.Read(token, 0, p.Now()+w.span(50*time.Millisecond, time.Second))
	})
}
