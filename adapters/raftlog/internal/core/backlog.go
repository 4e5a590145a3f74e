package core

import (
	"go.etcd.io/raft/v3"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// backlog is what the state machine has yet to apply. It is in memory until then, so that
// there must not be more and more of it where a state machine is slow, or stands:
//
//   - A leader takes no more updates.
//   - Another peer leaves out what the leader appends, as if it was lost: the leader finds that
//     out, and sends it again. What the peer has said remains true: it has acknowledged nothing
//     of that. Heartbeats count as before, and with them the promise that it votes for nobody
//     else. Its tables stand soon, and it asks for no lease, so that its candidates are taken
//     out, and others lead.
type backlog struct {
	load
	most    load // of a leader
	without bool // appends are left out
}

type load struct{ entries, bytes int }

func (l load) above(m load) bool { return l.entries > m.entries || l.bytes > m.bytes }

// maxBacklog is for a leader. Others, who apply what leaders have taken, leave out appends from
// twice as much on, until half of it is applied.
var maxBacklog = load{1 << 16, 128 << 20}

func (b *backlog) add(o replica.Outcome) {
	b.entries++
	b.bytes += len(o.Data)
}

func (b *backlog) applied(outcomes []replica.Outcome) {
	for _, o := range outcomes {
		b.entries--
		b.bytes -= len(o.Data)
	}
}

// full tells whether a leader takes no more updates.
func (b *backlog) full() bool { return b.above(b.most) }

// leavesOut tells whether this peer does not lead, and leaves out what is appended.
func (b *backlog) leavesOut(c *Core) bool {
	if c.state == raft.StateLeader {
		return false
	}
	before := b.without
	b.without = b.above(load{2 * b.most.entries, 2 * b.most.bytes}) || before && b.full()
	if b.without != before {
		c.cfg.Logger.Warn("dropping entries of the leader while the state machine is behind", "begins", b.without, "entries", b.entries, "bytes", b.bytes)
	}
	return b.without
}
