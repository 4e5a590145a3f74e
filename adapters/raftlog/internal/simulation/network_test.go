package simulation

// The network among peers.

import (
	"bytes"
	"time"
)

// blocked is the cause by which not even what is under way arrives.
const blocked = 1 << 20

type pair struct{ from, to string }

// network loses, doubles, delays and reorders what is sent.
type network struct {
	cut           map[pair]int // by how many causes
	held          map[pair][]func()
	drop, double  float64
	delay, jitter time.Duration
	straggle      float64 // messages that come very late
	lateness      time.Duration
}

func (n *network) init(w *world) {
	n.cut, n.held = map[pair]int{}, map[pair][]func(){}
	n.fair()
}

// fair is the network that works.
func (n *network) fair() {
	n.drop, n.double, n.straggle = 0, 0, 0
	n.delay, n.jitter, n.lateness = 200*time.Microsecond, 500*time.Microsecond, time.Second
}

func (w *world) peer(id string) *peer {
	for _, p := range w.peers {
		if p.ID == id {
			return p
		}
	}
	return nil
}

// send brings a frame to a peer, perhaps.
func (w *world) send(from *peer, to string, frame []byte) {
	w.mix(frame, uint64(from.num))
	n := &w.net
	p := w.peer(to)
	if p == nil || p.gone {
		return
	}
	if n.cut[pair{from.ID, to}] > 0 || w.chance(n.drop) {
		if w.chance(0.3) {
			from.later(w.span(0, 5*time.Millisecond), func() { from.core.ReportUnreachable(to) })
		}
		return
	}
	copies := 1
	if w.chance(n.double) {
		copies = 2
	}
	for range copies {
		d := n.delay + w.span(0, n.jitter)
		if w.chance(n.straggle) {
			d += w.span(0, n.lateness)
		}
		process, claim := p.process, from.claims()
		w.after(d, func() {
			if p.isWiped() && p.process != process { // it was on a connection with the process before
				return
			}
			if c := n.cut[pair{from.ID, to}]; c >= blocked || c > 0 && w.chance(0.8) { // else it was under way already
				return
			}
			deliver := func() {
				p.input(func() {
					if p.accepts(from, claim) {
						p.receive(from.ID, frame)
					}
				})
			}
			if held, on := n.held[pair{from.ID, to}]; on {
				n.held[pair{from.ID, to}] = append(held, deliver)
				return
			}
			deliver()
		})
	}
}

// sendSnapshot brings a snapshot file to a peer, perhaps, and tells the sender.
func (w *world) sendSnapshot(from *peer, to string, index uint64, frame []byte) {
	d := w.span(time.Millisecond, 100*time.Millisecond)
	raw, have := from.newestFile()
	p := w.peer(to)
	if have.Index != index || p == nil || p.gone || w.net.cut[pair{from.ID, to}] > 0 || w.chance(5*w.net.drop) {
		from.later(d, func() { from.core.ReportSnapshotSent(to, false) })
		return
	}
	process, tells, claim := from.process, from.process, from.claims()
	w.after(d, func() {
		if from.process != process || !p.up || p.isFull || w.net.cut[pair{from.ID, to}] > 0 {
			if from.process == tells {
				from.input(func() { from.core.ReportSnapshotSent(to, false) })
			}
			return
		}
		p.input(func() {
			if !p.accepts(from, claim) {
				return
			}
			w.tracef("%s: receives snapshot %d from %s", p.ID, index, from.ID)
			p.received[index] = bytes.Clone(raw)
			if err := p.core.ReceiveSnapshot(from.ID, frame, have.Index, have.Term); err != nil {
				w.failf("%s: snapshot from %s: %v", p.ID, from.ID, err)
			}
		})
		if from.process == tells {
			from.input(func() { from.core.ReportSnapshotSent(to, true) })
		}
	})
}

// sever cuts a way for some time, in one direction.
func (w *world) sever(from, to *peer, d time.Duration) {
	way := pair{from.ID, to.ID}
	w.net.cut[way]++
	w.after(d, func() {
		if w.net.cut[way] > 0 {
			w.net.cut[way]--
		}
	})
}
