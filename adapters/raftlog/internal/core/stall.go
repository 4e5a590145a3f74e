package core

import (
	"time"

	"go.etcd.io/raft/v3"
)

// behind tells that a peer has not applied for long what it knows to be committed: its disk
// stands, while those of a majority do not, or what the leader appends does not reach it. Its
// heartbeats may well be as before, so that nobody else sees that. It does not stand in the way
// of the others:
//
//   - It asks for no lease, which it could not use. So its candidates are taken out of their
//     lines, and others lead.
//   - If it leads the log, it is silent, as if it was cut off: nothing that it is asked for would
//     come to an end. So it hears nobody, and leads no more (the engine's CheckQuorum), and others
//     elect a leader. Nor does it ask for votes.
//
// It votes, and stores what it can, as before. Where the disks of a majority stand, nothing is
// committed, and nobody is behind.
type behind struct {
	answered uint64 // the newest index that a leader has answered a question for the lease with
	// mark was known to be committed at that time, when all of before was applied.
	mark uint64
	at   time.Duration
	is   bool
}

// behindTimeouts is how many election timeouts that takes: stalls of disks that are shorter cost
// no election.
const behindTimeouts = 3

func (b *behind) check(c *Core, now time.Duration) {
	if c.tables.Index >= b.mark {
		b.mark, b.at = max(c.commit, b.answered), now
	}
	is := c.tables.Index < b.mark && now-b.at >= behindTimeouts*c.cfg.Election
	if is != b.is {
		b.is = is
		c.cfg.Logger.Warn("this peer has not applied committed entries for a long time: its disk is stalled, or it does not receive the log", "begins", is, "applied", c.tables.Index, "committed", b.mark)
	}
}

// silent tells whether what the engine wants to send is left out: the words of a leader, or of
// one that wants to be.
func (b *behind) silent(c *Core) bool { return b.is && c.state != raft.StateFollower }
