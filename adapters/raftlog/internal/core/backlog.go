package core

import (
	"slices"

	"go.etcd.io/raft/v3"
)

// backlog measures the entries that the state machine has received and not applied yet. These entries
// are in memory, so their number must be limited if a state machine is slow or blocked:
//
//   - A leader rejects updates.
//   - Any other peer drops the entries that the leader appends, as if the network had lost them. The
//     leader detects the loss and sends the entries again. The peer acknowledges nothing that it drops.
//     It still handles heartbeats, and does not vote for another peer. Because its state does not
//     advance, it requests no lease, so its candidates expire and other candidates can lead.
type backlog struct {
	load
	passed   []passedLoad // the entries that the state machine has received and not applied, by index
	limit    load         // a leader rejects updates above this load, and another peer drops entries above twice this load
	dropping bool         // whether this peer drops the entries that the leader appends
}

// passedLoad is the load of the entry at index, which the state machine has received.
type passedLoad struct {
	index uint64
	bytes int
}

// load is a number of entries and the total size of their data in bytes.
type load struct{ entries, bytes int }

func (l load) exceedsLimit(limit load) bool {
	return l.entries > limit.entries || l.bytes > limit.bytes
}

// leaderBacklog is the load above which a leader rejects updates. Other peers have to apply what a
// leader has accepted, so they start to drop entries only at twice this load, and accept entries again
// when half of that is applied.
var leaderBacklog = load{1 << 16, 128 << 20}

// add adds the entry at index, whose data has the given size, to the backlog.
func (b *backlog) add(index uint64, bytes int) {
	b.passed = append(b.passed, passedLoad{index, bytes})
	b.entries++
	b.bytes += bytes
}

// removeThrough removes the entries up to and including index, which the state machine has applied.
func (b *backlog) removeThrough(index uint64) {
	n := 0
	for n < len(b.passed) && b.passed[n].index <= index {
		b.entries--
		b.bytes -= b.passed[n].bytes
		n++
	}
	b.passed = slices.Delete(b.passed, 0, n)
	if len(b.passed) == 0 && cap(b.passed) > 1<<16 { // right after the start, passed can have contained the whole log
		b.passed = nil
	}
}

// isFull reports whether the backlog of a leader is so large that it must reject updates.
func (b *backlog) isFull() bool { return b.exceedsLimit(b.limit) }

// dropsAppends reports whether this peer drops the entries that the leader appends. It decides by the size
// of the backlog, and logs when the decision changes. A leader never drops entries.
func (b *backlog) dropsAppends(c *Core) bool {
	if c.state == raft.StateLeader {
		return false
	}
	before := b.dropping
	b.dropping = b.exceedsLimit(load{2 * b.limit.entries, 2 * b.limit.bytes}) || before && b.isFull()
	if b.dropping != before {
		c.cfg.Logger.Warn("dropping entries of the leader while the state machine is behind", "started", b.dropping, "entries", b.entries, "bytes", b.bytes)
	}
	return b.dropping
}
