package simulation

// Peers that must not take part with the data that they have.

import (
	"fmt"
	"math/rand/v2"
	"path"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk/crashdisk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/identity"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
)

// life is which directory and which process a peer has, and which the others have.
type life struct {
	instance string
	starts   uint64
	known    identity.Registry // it is on the disk
	met      map[string]bool   // processes with which this one is connected
	unfit    bool              // the scenario wants it to end
	corrupt  bool              // its history is another one
	forgot   bool              // it has lost its directory in bad weather
}

// begins is a new process.
func (p *peer) begins() {
	p.starts++
	p.met = map[string]bool{}
}

// claims is what the process says of itself.
func (p *peer) claims() link.Claim {
	return link.Claim{Founding: p.known.Founding, Instance: p.instance, Start: p.starts, Process: fmt.Sprint(p.instance, p.process)}
}

// accepts is the handshake of two processes, before the first message from one to the other. What
// an earlier process has sent arrives only on a connection that there was.
func (p *peer) accepts(from *peer, claim link.Claim) bool {
	if p.w.believes || p.met[claim.Process] {
		return true
	}
	if !from.up || from.claims() != claim {
		return false
	}
	if !p.meets(from) || !from.meets(p) {
		return false
	}
	p.met[claim.Process], from.met[p.claims().Process] = true, true
	return true
}

// meets is one side's part in a handshake.
func (p *peer) meets(other *peer) bool {
	claim := other.claims()
	_, _, refused := p.known.Meet(other.ID, claim)
	if refused == nil {
		return true
	}
	p.w.after(p.w.net.delay, func() {
		if other.up && other.claims() == claim {
			other.mistaken(refused)
		}
	})
	return false
}

// mistaken is when another peer refuses this one.
func (p *peer) mistaken(why *link.RefusedError) {
	if why.Reason == link.ReasonFounding && p.core.Status().Commit > 1 {
		return
	}
	p.ends(why.Error())
}

// ends is the end of a peer that must not take part.
func (p *peer) ends(why string) {
	if !p.unfit {
		p.w.failf("%s ends, and is fit: %s", p.ID, why)
	}
	p.w.tracef("%s: ends: %s", p.ID, why)
	p.w.truth.mistaken++
	if p.up {
		p.end()
	}
	p.gone = true
	if p.forgot {
		p.w.users.replace(p)
	}
}

// hasLog is what a node looks at when it is opened. If it is false the peer has ended.
func (p *peer) hasLog() bool {
	wrong, err := identity.Owner{Instance: p.instance, Complete: true}.CheckLog(p.fs, logDir)
	p.must(err)
	if wrong == "" || p.w.believes {
		return true
	}
	p.ends(wrong)
	return false
}

// updates has n updates applied, one after the other.
func (w *world) updates(n int) {
	for range n {
		done := false
		w.users.attempt(w.newUpdate(w.date()), func() { done = true })
		w.until("an update", patience, func() string {
			if !done {
				return "it is not acknowledged"
			}
			return ""
		})
	}
}

// replaced has another peer vote in the place of one that is gone.
func (w *world) replaced(p *peer) {
	w.users.busy++
	w.users.changing = true
	w.users.replace(p)
}

// loseDirectory gives a machine an empty disk. The identities are of the next process.
func (p *peer) loseDirectory() {
	p.unfit, p.begun, p.isFull = true, nil, false
	p.disk = crashdisk.New(rand.New(rand.NewPCG(p.w.Uint64(), 1)))
	p.fs = p.mount()
	p.known, p.instance, p.starts = identity.Registry{}, fmt.Sprintf("%x", p.w.Uint64()), 0
}

func directoryLost(w *world) {
	w.lostWhileAllAreDown(func(p *peer) {
		p.loseDirectory()
		p.found(p.seeds)
	})
}

// forget has a voter lose its directory, at any time. Whoever is left recognizes it.
func (w *world) forget() {
	l := w.leader()
	if w.wiped != nil || w.users.changing || l == nil || !l.said.ready {
		return
	}
	m := l.core.Replica().Members
	p := w.peer(m.Voters[w.IntN(len(m.Voters))].ID)
	if len(m.Voters) < 3 || m.Joint() || p == l {
		return
	}
	for _, q := range w.peers { // one that has met nobody yet does not recognize anybody
		if _, known := q.known.Peers[p.ID]; !known && q != p && !q.gone || q.gone && m.IsVoter(q.raft) {
			return
		}
	}
	w.tracef("%s: loses its directory", p.ID)
	w.truth.forgot++
	w.users.busy++
	w.users.changing = true
	p.crash()
	p.forgot = true
	p.loseDirectory()
	if p.founds() {
		p.found(p.seeds)
	} else {
		p.join(l, p.seeds)
	}
	w.after(w.span(time.Millisecond, 50*time.Millisecond), p.start)
}

func logLost(w *world) {
	w.lostWhileAllAreDown(func(p *peer) {
		p.removeAll(logDir)
		_, newest := p.newestFile()
		p.stored = durable{before: newest.Index, term: newest.Term}
	})
}

func (p *peer) removeAll(dir string) {
	names, err := p.disk.List(dir)
	p.must(err)
	for _, name := range names {
		name = path.Join(dir, name)
		if f, err := p.disk.OpenRead(name); err == nil {
			p.must(f.Close())
		} else {
			p.removeAll(name)
		}
		p.must(p.disk.Remove(name))
	}
}

// lostWhileAllAreDown: one is down while the others acknowledge updates, and of these one then
// loses its data. It is started together with the one that was down, and nobody is left who
// remembers what it has acknowledged.
func (w *world) lostWhileAllAreDown(lose func(*peer)) {
	l, v, x := w.three()
	w.run(w.now + election)
	x.crash()
	w.updates(5)
	l.crash()
	v.crash()
	w.tracef("%s: loses its data", v.ID)
	v.unfit = true
	lose(v)
	v.start()
	x.start()
	w.run(w.now + 20*election)
	l.start()
	w.run(w.now + 5*election)
	if !v.gone {
		w.failf("%s goes on without its data", v.ID)
	}
	w.until("a leader", patience, func() string {
		if w.leader() == nil {
			return "nobody leads"
		}
		return ""
	})
	w.replaced(v)
}

// secondConfiguration: a peer founds the cluster with itself among the first voters.
func secondConfiguration(w *world) {
	l, v, x := w.three()
	d := w.newPeer()
	d.unfit = true
	d.found([]api.Peer{l.Peer, v.Peer, d.Peer})
	d.start()
	w.run(w.now + 5*election)
	if d.gone {
		return
	}
	// The majorities of the two configurations, one after the other.
	v.crash()
	x.crash()
	w.run(w.now + 20*election)
	l.crash()
	d.crash()
	v.start()
	x.start()
	w.run(w.now + 20*election)
}

// historyDiffers: what one peer has applied is not what the others have, whatever the cause.
func historyDiffers(w *world) {
	l, v, x := w.three()
	p := []*peer{l, v, x}[w.IntN(3)]
	w.tracef("%s: its history is another one from here on", p.ID)
	p.corrupt, p.unfit = true, true
	p.core.Replica().History ^= 1 << w.IntN(64)
	w.updates(1)
	w.run(w.now + 6*election)
	if !p.gone {
		w.failf("%s goes on with another history", p.ID)
	}
	w.until("a leader", patience, func() string {
		if w.leader() == nil {
			return "nobody leads"
		}
		return ""
	})
	w.replaced(p)
}

// faults, deferred, takes the end of a process by a fault that is expected.
func (p *peer) faults() {
	r := recover()
	if r == nil {
		return
	}
	fault, ok := r.(core.Fault)
	if !ok {
		panic(r)
	}
	p.w.truth.diverged++
	p.w.after(time.Microsecond, func() { p.ends(fault.Error()) })
	p.paused = true // nothing is asked of it any more
}
