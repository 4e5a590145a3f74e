package simulation

// What goes wrong.

import (
	"math/rand/v2"
	"slices"
	"time"
)

// weather is the mean time between two events of each kind; 0 for never.
type weather struct {
	noise                                                time.Duration // of the network
	partition, pause, crash, blackout, slowDisk, badDate time.Duration
	handOver, snapshot, resign, end, lapse, change       time.Duration
	badDisk, wipe, guest, fullDisk, forget               time.Duration
}

// planOf draws a plan from a seed.
func planOf(seed uint64) plan {
	r := rand.New(rand.NewPCG(seed, 0xab1e))
	// Each kind of weather is there in most runs, mild in some and hard in others.
	often := func(mean time.Duration) time.Duration {
		if r.IntN(4) == 0 {
			return 0
		}
		return time.Duration(float64(mean) * (0.4 + 1.6*r.Float64()))
	}
	p := plan{
		seed: seed, voters: 3 + r.IntN(3), storm: 16 * time.Second, window: 7 * time.Hour, fsync: true,
		elected: 2 + r.IntN(2), change: r.IntN(2) == 0, lapse: r.IntN(3) == 0,
		weather: weather{
			noise: often(2 * time.Second), partition: often(1500 * time.Millisecond), pause: often(time.Second),
			crash: often(2 * time.Second), blackout: often(20 * time.Second), slowDisk: often(3 * time.Second),
			badDate: often(4 * time.Second), handOver: often(2 * time.Second), snapshot: often(time.Second),
			resign: often(time.Second), end: often(8 * time.Second),
		},
	}
	if p.lapse {
		p.window, p.weather.lapse = 2*time.Second, 3*time.Second
	}
	if p.change {
		p.weather.change = time.Second
	}
	p.weather.badDisk = often(3 * time.Second)
	if p.lapse && r.IntN(2) == 0 {
		p.maxIDs = 10 + r.IntN(40)
	}
	p.weather.wipe = often(2 * time.Second)
	p.weather.forget = often(2 * time.Second)
	if r.IntN(3) == 0 {
		p.weather.guest = 2 * time.Second
	}
	p.weather.fullDisk = often(4 * time.Second)
	return p
}

// leasePlan is a plan of little use and very bad weather, for the leases: what matters for
// them happens when something goes wrong just after something else did.
func leasePlan(seed uint64) plan {
	r := rand.New(rand.NewPCG(seed, 0x1ea5e))
	often := func(mean time.Duration) time.Duration {
		if r.IntN(3) == 0 {
			return 0
		}
		return time.Duration(float64(mean) * (0.3 + 1.7*r.Float64()))
	}
	p := plan{
		seed: seed, voters: 3 + 2*r.IntN(2), storm: 16 * time.Second, window: 7 * time.Hour, fsync: true,
		elected: 2, idle: true,
		weather: weather{
			noise: often(time.Second), partition: often(300 * time.Millisecond), pause: often(400 * time.Millisecond),
			crash: often(600 * time.Millisecond), blackout: often(10 * time.Second), slowDisk: often(time.Second),
			handOver: often(400 * time.Millisecond), resign: often(700 * time.Millisecond), end: often(2 * time.Second),
		},
	}
	p.weather.badDisk = often(time.Second)
	return p
}

// stormy is the time of bad weather.
func (w *world) stormy() {
	u := &w.users
	w.often(w.weather.noise, w.noise)
	w.often(w.weather.partition, w.partition)
	w.often(w.weather.pause, func() {
		if p := w.victim(); p != nil {
			p.pause(w.span(time.Millisecond, 3*election))
		}
	})
	w.often(w.weather.crash, func() {
		if p := w.victim(); p != nil {
			p.fall(w.span(time.Millisecond, time.Second))
		}
	})
	w.often(w.weather.blackout, func() {
		for _, p := range w.peers {
			p.fall(w.span(time.Millisecond, 300*time.Millisecond))
		}
	})
	w.often(w.weather.slowDisk, func() {
		if p := w.victim(); p != nil {
			p.slow = w.span(2*time.Millisecond, 150*time.Millisecond)
			w.tracef("%s: disk takes up to %v", p.ID, p.slow)
			w.after(w.span(0, 2*time.Second), func() { p.slow = 0 })
		}
	})
	w.often(w.weather.badDisk, func() {
		if p := w.victim(); p != nil {
			p.disk.FailAt(p.disk.Ops() + 1 + w.IntN(8)) // writes and syncs mostly, of the log or of a snapshot
		}
	})
	w.often(w.weather.fullDisk, func() {
		if p := w.victim(); p != nil && !p.isFull {
			p.full(w.span(0, 4*time.Second))
		}
	})
	w.often(w.weather.wipe, w.wipe)
	w.often(w.weather.forget, w.forget)
	w.often(w.weather.guest, w.guest)
	w.often(w.weather.badDate, func() {
		if p := w.victim(); p != nil {
			p.wrong = w.span(-10*time.Minute, 10*time.Minute)
			if w.lapse && p.wrong > time.Second {
				p.wrong = time.Second // by what a leader dates ahead, the IDs of clients are too old
			}
			w.tracef("%s: calendar is wrong by %v", p.ID, p.wrong)
			w.after(w.span(0, 2*time.Second), func() { p.wrong = 0 })
		}
	})
	w.often(w.weather.handOver, func() {
		if p := w.leader(); p != nil {
			w.tracef("%s: hands over", p.ID)
			w.truth.handOvers++
			p.input(p.core.HandOver)
		}
	})
	w.often(w.weather.snapshot, func() {
		if p := w.someone(); p != nil {
			p.input(p.core.RequestSnapshot)
		}
	})
	w.often(w.weather.resign, func() {
		if p := w.someone(); p != nil {
			name := electionName(w.IntN(w.elected))
			p.input(func() { p.resign(name) })
		}
	})
	w.often(w.weather.end, func() {
		name := electionName(w.IntN(w.elected))
		if (w.lapse || w.idle) && w.chance(0.3) { // no client depends on the wall clock
			u.endAndForget(name)
			return
		}
		u.endAndRestart(name)
	})
	w.often(w.weather.lapse, func() {
		u.lapsed += w.span(30*time.Second, 2*time.Minute)
		w.tracef("calendars leap to %v", w.date())
	})
	if w.weather.change > 0 {
		w.after(w.weather.change, u.changer)
	}
	w.run(w.storm / 2)
	w.away()
	w.run(w.now + w.storm/2)
}

// often has something happen again and again.
func (w *world) often(mean time.Duration, do func()) {
	if mean == 0 {
		return
	}
	var again func()
	again = func() {
		if w.calm {
			return
		}
		do()
		w.after(time.Duration(w.ExpFloat64()*float64(mean)), again)
	}
	w.after(time.Duration(w.ExpFloat64()*float64(mean)), again)
}

// victim draws a peer, of which leaders and holders are the more interesting.
func (w *world) victim() *peer {
	if w.chance(0.4) {
		if p := w.leader(); p != nil {
			return p
		}
	}
	if w.chance(0.4) {
		for _, p := range w.peers {
			if _, ok := p.holds("e0"); ok {
				return p
			}
		}
	}
	var up []*peer
	for _, p := range w.peers {
		if p.up {
			up = append(up, p)
		}
	}
	if len(up) == 0 {
		return nil
	}
	return up[w.IntN(len(up))]
}

// leader is the leader of the newest term, if it is up.
func (w *world) leader() *peer {
	var l *peer
	for _, p := range w.peers {
		if p.up && p.said.leads && (l == nil || p.said.term > l.said.term) {
			l = p
		}
	}
	return l
}

// fall is a crash, and a restart after a while.
func (p *peer) fall(d time.Duration) {
	if p.up {
		p.crash()
		p.w.after(d, p.start)
	}
}

// noise changes how bad the network is.
func (w *world) noise() {
	n := &w.net
	n.fair()
	if w.chance(0.3) {
		return
	}
	n.drop, n.double, n.straggle = 0.1*w.Float64()*w.Float64(), 0.1*w.Float64(), 0.02*w.Float64()
	n.jitter = w.span(time.Millisecond, 20*time.Millisecond)
	w.tracef("network: %+v", *n)
}

// partition cuts some ways for a while.
func (w *world) partition() {
	d := w.span(20*time.Millisecond, 1200*time.Millisecond)
	a := w.victim()
	if a == nil {
		return
	}
	var others []*peer
	for _, p := range w.peers {
		if p != a && !p.gone {
			others = append(others, p)
		}
	}
	if len(others) == 0 {
		return
	}
	b := others[w.IntN(len(others))]
	kind := w.IntN(6)
	w.tracef("network: partition %d of %s, %s for %v", kind, a.ID, b.ID, d)
	switch kind {
	case 0: // nobody hears a
		for _, p := range others {
			w.sever(a, p, d)
		}
	case 1: // a hears nobody
		for _, p := range others {
			w.sever(p, a, d)
		}
	case 2:
		for _, p := range others {
			w.sever(a, p, d)
			w.sever(p, a, d)
		}
	case 3:
		w.sever(a, b, d)
	case 4:
		w.sever(a, b, d)
		w.sever(b, a, d)
	case 5: // two halves
		all := append(slices.Clone(others), a)
		w.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for _, p := range all[:len(all)/2] {
			for _, q := range all[len(all)/2:] {
				w.sever(p, q, d)
				w.sever(q, p, d)
			}
		}
	}
}
