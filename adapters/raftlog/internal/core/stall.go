package core

import (
	"time"

	"go.etcd.io/raft/v3"
)

// stallDetector detects that this peer has not applied entries that it knows to be committed for several
// election timeouts: its disk is stalled while the disks of a majority are not, or it does not receive the
// entries. Its heartbeats may be normal, so other peers do not detect the stall. A stalled peer must not
// prevent others from leading:
//
//   - It requests no lease, which it could not use. So its candidates expire, and other candidates lead.
//   - If it is the leader of the log, it sends no messages, as if the network was partitioned, because it
//     could complete no request. So it receives no replies and steps down (the engine's CheckQuorum), and the
//     other peers elect a leader. It does not request votes either.
//
// A stalled peer still votes, and stores the entries that it can. If the disks of a majority are stalled,
// nothing is committed, and no peer is considered as stalled.
type stallDetector struct {
	confirmed uint64        // the greatest commit index in the leaders' replies to lease requests
	target    uint64        // the commit index that this peer must apply in time; otherwise it is stalled
	reachedAt time.Duration // when checkStall last found that this peer had applied target
	stalled   bool
}

// stallTimeouts is the number of election timeouts after which a peer that does not make progress considers
// itself as stalled. A disk that stalls for less time causes no election.
const stallTimeouts = 3

func (s *stallDetector) checkStall(c *Core, now time.Duration) {
	if c.replica.Index >= s.target {
		s.target, s.reachedAt = max(c.commit, s.confirmed), now
	}
	stalled := c.replica.Index < s.target && now-s.reachedAt >= stallTimeouts*c.cfg.Election
	if stalled != s.stalled {
		s.stalled = stalled
		c.cfg.Logger.Warn("this peer has not applied committed entries for a long time: its disk is stalled, or it does not receive the log", "started", stalled, "applied", c.replica.Index, "committed", s.target)
	}
}

// suppressesMessages reports whether this peer sends no messages of the engine, because it is stalled
// and is a leader or a candidate.
func (s *stallDetector) suppressesMessages(c *Core) bool {
	return s.stalled && c.state != raft.StateFollower
}
