package simulation

// Weather that is made to measure: for faults that chance alone takes long to find.

import (
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
)

// calmPlan is three voters in good weather, and then a scenario.
func calmPlan(seed uint64, scenario func(*world)) plan {
	return plan{
		seed: seed, voters: 3, window: 7 * time.Hour, fsync: true, elected: 1, scenario: scenario,
	}
}

// await lets time pass until ok, looking very often; false if it takes longer than limit.
func (w *world) await(limit time.Duration, ok func() bool) bool {
	for end := w.now + limit; w.now < end; {
		if ok() {
			return true
		}
		w.run(w.now + 50*time.Microsecond)
	}
	return ok()
}

// three returns the leader, whose candidate leads e0, and the two others.
func (w *world) three() (leader, a, b *peer) {
	w.until("a quiet beginning", patience, w.well)
	for {
		leader = w.leader()
		if _, ok := leader.holds("e0"); ok {
			break
		}
		for _, p := range w.peers {
			if _, ok := p.holds("e0"); ok {
				p.resign("e0")
				p.drain()
			}
		}
		w.run(w.now + 500*time.Millisecond)
		w.until("another first", patience, w.well)
	}
	var others []*peer
	for _, p := range w.peers {
		if p != leader {
			others = append(others, p)
		}
	}
	if w.chance(0.5) {
		return leader, others[1], others[0]
	}
	return leader, others[0], others[1]
}

func (w *world) block(from, to *peer)   { w.net.cut[pair{from.ID, to.ID}] = blocked }
func (w *world) unblock(from, to *peer) { w.net.cut[pair{from.ID, to.ID}] = 0 }

// hold keeps what one peer sends another until release.
func (w *world) hold(from, to *peer) {
	w.unblock(from, to)
	w.net.held[pair{from.ID, to.ID}] = []func(){}
}

func (w *world) release(from, to *peer) {
	way := pair{from.ID, to.ID}
	for _, deliver := range w.net.held[way] {
		deliver()
	}
	delete(w.net.held, way)
}

// confirmed waits until a leader has just renewed its lease.
func (w *world) confirmed(l *peer) bool {
	return w.await(election, func() bool { return l.said.leads && l.said.lease > l.Now()+election*9/10 })
}

// restartOfVoter: a follower confirms the leader, and starts anew; the leader is cut off; and
// the third one, which has not heard the leader for long, is elected.
func restartOfVoter(w *world) {
	l, v, x := w.three()
	w.block(l, x)
	w.run(w.now + w.span(0, 2*election))
	if !w.confirmed(l) {
		return
	}
	for _, q := range []*peer{v, x} {
		w.block(l, q)
		w.block(q, l)
	}
	v.crash()
	v.start()
	w.run(w.now + 2*election)
}

// leaderForgets: one gets to a newer term and is not elected, and the leader goes on with the
// other one. It hears of the newer term just after it has renewed its lease, steps down, and
// votes for the one of the newer term.
func leaderForgets(w *world) {
	l, v, x := w.three()
	if !w.newerTerm(l, v, x) {
		return
	}
	w.unblock(l, v)
	w.run(w.now + w.span(0, 2*election))
	if !w.confirmed(l) {
		return
	}
	w.unblock(x, v)
	w.unblock(l, x)
	w.unblock(x, l)
	w.await(election, func() bool { return x.said.leads })
	w.block(x, l)
	w.block(v, l)
	w.run(w.now + election)
}

// followerForgets: one gets to a newer term and is not elected. A follower has asked it for a
// vote for the next term, and then hears the leader again, and confirms it. Then it gets the
// answer: no, and that there is a newer term.
func followerForgets(w *world) {
	l, v, x := w.three()
	if !w.newerTerm(l, v, x) {
		return
	}
	w.hold(x, v)
	if !w.await(election, func() bool { return v.core.Status().Role == core.Candidate }) {
		return
	}
	w.run(w.now + 2*time.Millisecond)
	w.unblock(l, v)
	w.run(w.now + w.span(0, election))
	if !w.confirmed(l) {
		return
	}
	w.block(l, v)
	w.block(v, l)
	w.release(x, v)
	w.run(w.now + 2*election)
}

// newerTerm cuts the leader off until x is a candidate, for whom nobody can vote.
func (w *world) newerTerm(l, v, x *peer) bool {
	w.block(l, x)
	w.block(l, v)
	if !w.await(4*election, func() bool { return x.said.term > l.said.term }) || x.core.Status().Role != core.Candidate {
		return false
	}
	w.block(x, v)
	w.block(x, l)
	return l.said.leads
}

// endedUnaware: an election is ended and begun again while the one that leads it is cut off,
// and does not know.
func endedUnaware(w *world) {
	w.until("a quiet beginning", patience, w.well)
	for _, p := range w.peers {
		if _, ok := p.holds("e0"); ok && !p.said.leads {
			w.await(election, func() bool { return p.said.lease > p.Now()+election*9/10 })
			for _, q := range w.peers {
				w.block(q, p)
				w.block(p, q)
			}
		}
	}
	w.users.busy++
	w.users.control(w.op(entry.End, "e0"), func() {
		w.users.control(w.op(entry.Restart, "e0"), func() { w.users.busy-- })
	})
	w.run(w.now + 2*election)
}

// forgottenUnaware: an election is ended while the process of its leader is paused. Then all wall
// clocks jump by more than the window.
func forgottenUnaware(w *world) {
	w.until("a quiet beginning", patience, w.well)
	for _, p := range w.peers {
		if _, ok := p.holds("e0"); ok && !p.said.leads {
			w.await(election, func() bool { return p.said.lease > p.Now()+election*9/10 })
			p.pause(2 * election)
		}
	}
	w.users.busy++
	w.users.control(w.op(entry.End, "e0"), func() {
		w.users.lapsed += w.window + 2*time.Minute
		w.users.busy--
	})
	w.run(w.now + 2*election)
}

// diskStands: the disk of who leads an election, and of half of those who lead the log too, takes
// no write to its end. The others have other leaders soon, and their updates are applied.
func diskStands(w *world) {
	p, a, b := w.three()
	if w.chance(0.5) {
		if p = a; w.chance(0.5) {
			p = b
		}
		for {
			if _, ok := p.holds("e0"); ok {
				break
			}
			for _, q := range w.peers {
				if _, ok := q.holds("e0"); ok {
					q.resign("e0")
					q.drain()
				}
			}
			w.run(w.now + 500*time.Millisecond)
			w.until("another first", patience, w.well)
		}
	}
	p.stalls = true
	until, applied := w.now+20*election, 0
	var more func()
	more = func() {
		if applied++; w.now < until {
			w.users.attempt(w.newUpdate(w.date()), more)
		}
	}
	more()
	w.until("another one leads", 12*election, func() string {
		for _, q := range w.peers {
			if _, ok := q.holds("e0"); ok && q != p {
				return ""
			}
		}
		return "nobody leads e0"
	})
	applied = 0
	w.run(until)
	if applied < 20 {
		w.failf("%d updates are applied while a disk stands", applied)
	}
	if p.stalls = false; w.chance(0.5) { // or it goes on
		p.crash()
		p.start()
		return
	}
	p.flush()
}
