package simulation

// Disks that are lost.

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk/crashdisk"
)

// wiped is a peer that has lost its disk, and comes back under its own ID. The leader of then
// remembers what it has acknowledged, so that it stops. If that leader is lost as well, nobody
// remembers: that is a limit of the log's, and the peer is taken away before it does harm.
type wiped struct {
	p, leader *peer
	term      uint64
}

// wipe has a voter lose its disk, if it is certain that only the leader can tell it anything.
func (w *world) wipe() {
	l := w.leader()
	if w.wiped != nil || w.users.changing || l == nil || !l.said.ready || len(l.core.Replica().Members.Voters) < 3 {
		return
	}
	m := l.core.Replica().Members
	p := w.peer(m.Voters[w.IntN(len(m.Voters))].ID)
	first := uint64(1)
	if !p.founds() {
		_, newest := l.newestFile()
		first = newest.Index
	}
	if p == l || m.Joint() || l.core.Acknowledged(p.ID) <= first {
		return
	}
	for _, q := range w.peers {
		switch {
		case q.said.term > l.said.term || q.stored.hard.term > l.said.term,
			q.up && (q.paused || q != l && q.said.leads || q.core.Status().Role == core.Candidate),
			q.gone && m.IsVoter(q.raft):
			return
		}
	}
	w.tracef("%s: loses its disk, of which %s remembers entry %d", p.ID, l.ID, l.core.Acknowledged(p.ID))
	w.truth.wiped++
	w.wiped = &wiped{p, l, l.said.term}
	w.users.busy++
	w.users.changing = true
	p.crash()
	p.disk = crashdisk.New(rand.New(rand.NewPCG(w.Uint64(), 1)))
	p.fs = p.mount()
	p.begun, p.isFull = nil, false
	if p.founds() {
		p.found(p.seeds)
	} else {
		p.join(l, p.seeds)
	}
	w.after(w.span(time.Millisecond, 50*time.Millisecond), p.start)
	w.after(election, func() { w.lose(p) }) // soon it could vote
}

func (p *peer) founds() bool { return slices.Contains(p.seeds, p.Peer) }

// isWiped tells whether the peer has lost its disk, and has not stopped for that yet.
func (p *peer) isWiped() bool { return p.w.wiped != nil && p.w.wiped.p == p }

// watchWiped looks at each step whether the leader that remembers is lost.
func (w *world) watchWiped(q *peer) {
	if x := w.wiped; x != nil && (q.said.term > x.term || q == x.leader && !q.said.leads) {
		w.after(0, func() { w.lose(x.p) })
	}
}

// refused is the end of a wiped peer by what the leader remembers.
func (w *world) refused(p *peer, why error) {
	w.tracef("%s: is not to go on: %v", p.ID, why)
	w.truth.lost++
	w.lose(p)
}

// lose is the end of a wiped peer, which another one under a new ID replaces.
func (w *world) lose(p *peer) {
	if !p.isWiped() {
		return
	}
	w.wiped = nil
	if p.up {
		p.end()
	}
	w.tracef("%s: is taken away", p.ID)
	p.gone = true
	w.users.replace(p)
}

// diskLost: in good weather the leader always tells.
func diskLost(w *world) {
	w.until("a quiet beginning", patience, w.well)
	for w.wiped == nil {
		w.wipe()
		w.run(w.now + time.Millisecond)
	}
	w.until("the end of it", election, func() string {
		if w.truth.lost == 0 {
			return w.wiped.p.ID + " goes on without its disk"
		}
		return ""
	})
}

// replace has a new peer vote in place of another one.
func (u *users) replace(old *peer) {
	w := u.w
	from := w.leader()
	if from == nil || from.paused || !from.said.ready || from.core.Replica().Members.Joint() {
		w.after(w.span(10*time.Millisecond, 100*time.Millisecond), func() { u.replace(old) })
		return
	}
	voters := from.core.Replica().Members.Membership().Voters
	to := slices.DeleteFunc(slices.Clone(voters), func(v api.Peer) bool { return v == old.Peer })
	p := w.newPeer()
	p.join(from, to)
	p.start()
	w.tracef("users: %s in place of %s", p.ID, old.ID)
	u.change(w.newID(), append(to, p.Peer), func() {
		w.truth.changes++
		u.busy--
		u.changing = false
	})
}
