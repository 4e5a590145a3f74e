package simulation

// What must become true once nothing goes wrong any more.

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
)

// patience is within which time the cluster must be as it should.
const patience = 20 * time.Second

// calmDown ends the bad weather, and waits for the good.
func (w *world) calmDown() {
	w.calm = true
	w.tracef("the weather is good")
	w.net.fair()
	clear(w.net.cut)
	clear(w.net.held)
	for _, p := range w.peers {
		p.slow, p.wrong = 0, 0
		p.disk.FailAt(0)
		p.setFull(false)
		p.resume()
		p.start()
	}
	w.run(w.now + 2*w.net.lateness) // what was on its way arrives
	w.until("after the weather", patience, w.well)
	w.leftOut()
	w.fill()
	// It goes on so.
	l := w.leader()
	term, holders := l.said.term, map[string]holder{}
	for i := range w.elected {
		holders[electionName(i)] = w.truth.holders[electionName(i)]
	}
	done, read := false, 0
	up := w.users.next()
	for up.index != 0 || up.unsure {
		up = w.users.next()
	}
	up.id = w.newID()
	w.users.attempt(up, func() { done = true })
	members := w.members(l)
	for _, p := range members {
		w.users.read(p, func() { read++ })
	}
	w.run(w.now + time.Second)
	switch {
	case !done || up.index == 0:
		w.failf("in good weather an update is not applied")
	case read != len(members):
		w.failf("in good weather %d of %d reads are answered", read, len(members))
	case w.leader() != l || l.said.term != term:
		w.failf("in good weather the leader of term %d, %s, does not last", term, l.ID)
	}
	w.until("at the end", patience, w.well)
	for name, h := range holders {
		if w.truth.holders[name] != h {
			w.failf("in good weather %v does not last as %s's leader: %v", h, name, w.truth.holders[name])
		}
	}
	for _, u := range w.users.done {
		w.users.acknowledged(l, u, u.index)
	}
}

// fill has the leader remember as many IDs as it may. It refuses, and goes on refusing, until
// time has passed, by which alone it forgets them: nobody else writes anything.
func (w *world) fill() {
	if w.maxIDs == 0 {
		return
	}
	was := w.truth.full
	var more func()
	more = func() {
		if w.truth.full == was {
			w.users.attempt(w.newUpdate(w.date()), more)
		}
	}
	more()
	w.until("as many IDs as may be", patience, func() string {
		if w.truth.full == was {
			return fmt.Sprintf("%d are remembered", w.leader().core.Status().IDs)
		}
		return w.well()
	})
	l := w.leader()
	if n := l.core.Status().IDs; n < l.maxIDs {
		w.failf("%s refuses an update for its ID, remembers %d, and may remember %d", l.ID, n, l.maxIDs)
	}
	w.users.lapsed += 70 * time.Second
	w.until("the log's time", patience, func() string {
		if stands := w.date().Sub(l.core.Replica().Clock); stands > time.Minute {
			return fmt.Sprintf("it stands for %v, with %d IDs", stands, l.core.Status().IDs)
		}
		return ""
	})
	w.users.lapsed += 20 * time.Minute // more than the window, what is added to it, and how far ahead an ID may be
	w.until("room for IDs", patience, func() string {
		if n := l.core.Status().IDs; n > 0 {
			return fmt.Sprintf("%d are remembered", n)
		}
		return w.well()
	})
	w.run(w.now + election) // for peers to hear that not only their own calendars have leapt
}

// members are the peers that there are, as the leader knows them.
func (w *world) members(l *peer) []*peer {
	var all []*peer
	for _, m := range l.core.Replica().Members.All() {
		if p := w.peer(m.ID); !p.gone {
			all = append(all, p)
		}
	}
	return all
}

// well says what is not as it should be, or nothing.
func (w *world) well() string {
	var leaders []*peer
	for _, p := range w.peers {
		if p.up && p.said.leads {
			leaders = append(leaders, p)
		}
	}
	if len(leaders) != 1 {
		return fmt.Sprintf("%d leaders", len(leaders))
	}
	l := leaders[0]
	if !l.said.ready || l.said.lease <= l.Now() {
		return l.ID + " leads without a lease"
	}
	for _, token := range slices.Sorted(maps.Keys(w.users.calls)) {
		c := w.users.calls[token]
		return fmt.Sprintf("%s of %v, at %s, is not answered", c.what, c.began, c.p.ID)
	}
	if w.users.busy > 0 {
		return fmt.Sprintf("%d users wait", w.users.busy)
	}
	tables := l.core.Replica()
	if tables.Members.Joint() {
		return "a change is not complete"
	}
	members := w.members(l)
	for _, p := range members {
		s := p.core.Status()
		switch {
		case s.Applied != tables.Index || p.machine.index != tables.Index:
			return fmt.Sprintf("%s has applied %d, %s %d", p.ID, s.Applied, l.ID, tables.Index)
		case p.core.Replica().Sum() != tables.Sum():
			return fmt.Sprintf("the tables of %s are not those of %s", p.ID, l.ID)
		case p.machine != l.machine:
			return fmt.Sprintf("the state machine of %s is not that of %s", p.ID, l.ID)
		case s.Lease <= p.Now():
			return p.ID + " has no lease"
		case s.Leader.ID != l.ID && s.Role != core.Leader:
			return p.ID + " does not know the leader"
		}
	}
	for i := range w.elected {
		name := electionName(i)
		line := tables.Elections.Get(name)
		if line.Ended { // and was begun anew: no request to end it that comes late counts
			return name + " is ended"
		}
		for _, p := range members {
			if p.stands[name] == "" || line.Position(p.stands[name]) < 0 {
				return fmt.Sprintf("%s does not stand in %s", p.ID, name)
			}
		}
		for _, c := range line.Candidates {
			if !slices.ContainsFunc(members, func(p *peer) bool { return p.raft == c.Peer && p.stands[name] == c.ID }) {
				return fmt.Sprintf("%s stands in %s, and is of no process that there is", c.ID, name)
			}
		}
		if !slices.ContainsFunc(members, func(p *peer) bool { _, ok := p.holds(name); return ok }) {
			return name + " has no leader"
		}
	}
	return ""
}
