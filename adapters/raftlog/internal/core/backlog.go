package core

import (
	"slices"

	"go.etcd.io/raft/v3"
)

// backlog measures the entries that the state machine has not applied yet. They are in memory, so
// their number must be limited if a state machine is slow or blocked:
//
//   - A leader rejects updates.
//   - Another peer drops the entries that the leader appends, as if they were lost; the leader
//     detects that and sends them again. The peer has acknowledged nothing that it drops. It still
//     handles heartbeats, and does not vote for another peer. Because its state does not advance, it
//     requests no lease, so its candidates expire and others can lead.
type backlog struct {
	load
	passed   []passedLoad // entries that the state machine has received and not applied, by index
	limit    load         // above this limit a leader rejects updates; above twice the limit another peer drops entries
	dropping bool         // this peer drops appended entries
}

// passedLoad is the load of an entry.
type passedLoad struct {
	index uint64
	bytes int
}

// load is a number of entries and the size of their data.
type load struct{ entries, bytes int }

func (l load) exceedsLimit(limit load) bool {
	return l.entries > limit.entries || l.bytes > limit.bytes
}

// leaderBacklog is the limit of a leader. Other peers have to apply what a leader has accepted, so they
// start to drop entries only at twice the limit, and stop when half of that is applied.
var leaderBacklog = load{1 << 16, 128 << 20}

// add adds an entry with data of the given size.
func (b *backlog) add(index uint64, bytes int) {
	b.passed = append(b.passed, passedLoad{index, bytes})
	b.entries++
	b.bytes += bytes
}

// removeThrough removes the entries up to an index.
func (b *backlog) removeThrough(index uint64) {
	n := 0
	for n < len(b.passed) && b.passed[n].index <= index {
		b.entries--
		b.bytes -= b.passed[n].bytes
		n++
	}
	b.passed = slices.Delete(b.passed, 0, n)
	if len(b.passed) == 0 && cap(b.passed) > 1<<16 { // after the start, passed may have contained the whole log
		b.passed = nil
	}
}

// isFull reports whether a leader must reject updates.
func (b *backlog) isFull() bool { return b.exceedsLimit(b.limit) }

// dropsAppends reports whether this peer is not the leader and drops the entries that are appended.
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
