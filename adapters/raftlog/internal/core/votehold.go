package core

import (
	"go.etcd.io/raft/v3"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// transferReason is the context that the engine puts into the vote requests of a leadership transfer. A peer
// answers such requests even while holdsVote returns true.
const transferReason = "CampaignTransfer"

// holdsVote reports whether this peer must not vote now, because it may have confirmed a leader within
// the last election timeout. That leader's lease assumes that this peer votes for no other peer during
// this time. The engine ensures this only until a restart, and until it receives a newer term, even
// from a peer that was not elected in that term. A peer that was the leader until now, and has not
// handled the change of its role yet (updateRole), does not vote either.
func (c *Core) holdsVote() bool {
	if c.state == raft.StateLeader && c.rn.BasicStatus().RaftState != raft.StateLeader {
		return true
	}
	now := c.now()
	if now-c.started < c.cfg.Election*101/100 {
		return !c.cfg.Disabled.Has(replica.CheckVoteHold)
	}
	return c.followedAt != 0 && now-c.followedAt < c.cfg.Election-c.cfg.Tick
}
