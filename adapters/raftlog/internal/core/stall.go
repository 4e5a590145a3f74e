package core

import (
	"time"

	"go.etcd.io/raft/v3"
)

// stallDetector detects a peer that has not applied known committed entries for several election timeouts: its
// disk is stalled while those of a majority are not, or it does not receive entries. Its heartbeats may be
// normal, so other peers do not detect this. It must not prevent others from leading:
//
//   - It requests no lease, which it could not use. So its candidates expire, and others lead.
//   - If it is the leader of the log, it sends no messages, as if it was partitioned, because it
//     could complete no request. So it receives no replies and steps down (the engine's
//     CheckQuorum), and the other peers elect a leader. It does not request votes either.
//
// It still votes, and stores what it can. If the disks of a majority are stalled, nothing is committed,
// and no peer counts as stalled.
type stallDetector struct {
	confirmed uint64        // the newest index that a leader has confirmed in reply to a lease request
	target    uint64        // an index that is known to be committed
	reachedAt time.Duration // when this peer had applied all earlier targets
	stalled   bool
}

// stallTimeouts is the number of election timeouts after which a peer is stalled. Shorter stalls of
// a disk cause no election.
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

// suppressesMessages reports whether messages of the engine are dropped: those of a stalled leader or
// candidate.
func (s *stallDetector) suppressesMessages(c *Core) bool {
	return s.stalled && c.state != raft.StateFollower
}
