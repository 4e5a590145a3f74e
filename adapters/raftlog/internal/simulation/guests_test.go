package simulation

// Peers without a vote, which come and go.

import "time"

// absence is longer than a client may be silent.
const absence = 125 * time.Second

// leap lets time pass in which nothing happens: the machines stand still, their clocks do not.
func (w *world) leap(d time.Duration) {
	w.tracef("nothing happens for %v", d)
	if w.wiped != nil {
		w.lose(w.wiped.p)
	}
	for i := range w.events {
		w.events[i].at += d
	}
	w.now += d
}

// guest has a peer come that only gets the log, and go: for a while, or for ever.
func (w *world) guest() {
	l := w.leader()
	here := 0
	for _, p := range w.peers {
		if p.guest && !p.gone {
			here++
		}
	}
	if l == nil || !l.said.ready || here >= 2 {
		return
	}
	p := w.newPeer()
	p.guest = true
	w.tracef("%s: comes as a guest", p.ID)
	p.join(l, l.core.Replica().Members.Membership().Voters)
	p.start()
	w.after(w.span(time.Second, 8*time.Second), func() {
		switch {
		case w.calm:
		case w.chance(0.5):
			w.users.retire(p)
		default:
			p.fall(w.span(time.Millisecond, 4*time.Second))
		}
	})
}

// away is a time for which some guests are away: so long that they are left out.
func (w *world) away() {
	if w.weather.guest == 0 {
		return
	}
	for _, p := range w.peers {
		if p.guest && w.chance(0.5) {
			p.fall(w.span(0, 2*time.Second))
		}
	}
	w.run(w.now + w.span(0, 2*election))
	w.leap(absence)
}

// leftOut: clients that are gone do not stay in the configuration, and one that comes back is
// admitted again.
func (w *world) leftOut() {
	if w.weather.guest == 0 {
		return
	}
	var back *peer
	for _, p := range w.peers {
		_, member := w.leader().core.Replica().Members.Find(p.raft)
		switch {
		case !p.guest || p.gone:
		case member:
			back = p
		default: // it may know only peers that are gone: it is started anew, with the names of those there are
			p.crash()
			p.start()
		}
	}
	if back != nil {
		back.crash()
	}
	w.run(w.now + 3*election) // the engine remembers for a while whom it has heard
	w.leap(absence)
	w.until("who is gone", patience, func() string {
		l := w.leader()
		if l == nil {
			return "no leader"
		}
		for _, c := range l.core.Replica().Members.Learners {
			if !w.peer(c.ID).up {
				return c.ID + " is a client yet"
			}
		}
		return ""
	})
	if back != nil {
		back.start()
	}
	w.until("who is back", patience, func() string {
		if l := w.leader(); l != nil {
			for _, p := range w.peers {
				if _, member := l.core.Replica().Members.Find(p.raft); p.guest && !p.gone && !member {
					return p.ID + " is not admitted"
				}
			}
		}
		return w.well()
	})
}
