package simulation

// This file simulates the network between the peers.

import (
	"bytes"
	"time"
)

// blocked is the value of network.cuts with which a direction is interrupted completely. With a smaller value,
// some of the frames in flight still arrive.
const blocked = 1 << 20

type peerPair struct{ from, to string }

// network is the simulated network, which drops, duplicates, delays and reorders frames.
type network struct {
	cuts            map[peerPair]int // how many partitions cut each direction
	held            map[peerPair][]func()
	drop, duplicate float64
	delay, jitter   time.Duration
	late            float64 // the probability that a frame arrives very late
	lateness        time.Duration
}

func (n *network) init(h *harness) {
	n.cuts, n.held = map[peerPair]int{}, map[peerPair][]func(){}
	n.reset()
}

// reset makes the network lose and delay no frames any more.
func (n *network) reset() {
	n.drop, n.duplicate, n.late = 0, 0, 0
	n.delay, n.jitter, n.lateness = 200*time.Microsecond, 500*time.Microsecond, time.Second
}

func (h *harness) peerByID(id string) *peer {
	for _, p := range h.peers {
		if p.ID == id {
			return p
		}
	}
	return nil
}

// send delivers a frame to a peer later, unless the network loses the frame.
func (h *harness) send(from *peer, to string, frame []byte) {
	h.addToHash(frame, uint64(from.number))
	n := &h.net
	p := h.peerByID(to)
	if p == nil || p.stopped {
		return
	}
	if n.cuts[peerPair{from.ID, to}] > 0 || h.randomBool(n.drop) {
		if h.randomBool(0.3) {
			from.scheduleInput(h.duration(0, 5*time.Millisecond), func() { from.core.ReportUnreachable(to) })
		}
		return
	}
	copies := 1
	if h.randomBool(n.duplicate) {
		copies = 2
	}
	for range copies {
		d := n.delay + h.duration(0, n.jitter)
		if h.randomBool(n.late) {
			d += h.duration(0, n.lateness)
		}
		process, claim := p.process, from.claim()
		h.schedule(d, func() {
			if p.hasLostDisk() && p.process != process {
				// Drop the frame, because it was sent on a connection with the previous process of the
				// peer.
				return
			}
			// Drop the frame if its direction was cut while it was in flight: always if the direction is
			// blocked, and otherwise with a probability of 0.8.
			if c := n.cuts[peerPair{from.ID, to}]; c >= blocked || c > 0 && h.randomBool(0.8) {
				return
			}
			deliver := func() {
				p.runInput(func() {
					if p.connect(from, claim) {
						p.receive(from.ID, frame)
					}
				})
			}
			if held, on := n.held[peerPair{from.ID, to}]; on {
				n.held[peerPair{from.ID, to}] = append(held, deliver)
				return
			}
			deliver()
		})
	}
}

// sendSnapshot delivers a snapshot to a peer, unless the network loses the snapshot, and reports the
// result to the sender.
func (h *harness) sendSnapshot(from *peer, to string, index uint64, frame []byte) {
	d := h.duration(time.Millisecond, 100*time.Millisecond)
	raw, have := from.newestFile()
	p := h.peerByID(to)
	if have.Index != index || p == nil || p.stopped || h.net.cuts[peerPair{from.ID, to}] > 0 || h.randomBool(5*h.net.drop) {
		from.scheduleInput(d, func() { from.core.ReportSnapshotSent(to, false) })
		return
	}
	process, claim := from.process, from.claim()
	h.schedule(d, func() {
		if from.process != process || !p.up || p.diskFull || h.net.cuts[peerPair{from.ID, to}] > 0 {
			if from.process == process {
				from.runInput(func() { from.core.ReportSnapshotSent(to, false) })
			}
			return
		}
		p.runInput(func() {
			if !p.connect(from, claim) {
				return
			}
			h.tracef("%s: receives snapshot %d from %s", p.ID, index, from.ID)
			p.received[index] = bytes.Clone(raw)
			if err := p.core.ReceiveSnapshot(from.ID, frame, have.Index, have.Term); err != nil {
				h.failf("%s: snapshot from %s: %v", p.ID, from.ID, err)
			}
		})
		if from.process == process {
			from.runInput(func() { from.core.ReportSnapshotSent(to, true) })
		}
	})
}

// cutFor cuts the direction from one peer to another for the time d.
func (h *harness) cutFor(from, to *peer, d time.Duration) {
	way := peerPair{from.ID, to.ID}
	h.net.cuts[way]++
	h.schedule(d, func() {
		if h.net.cuts[way] > 0 {
			h.net.cuts[way]--
		}
	})
}
