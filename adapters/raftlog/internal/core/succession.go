package core

import (
	"time"

	"go.etcd.io/raft/v3"
)

// succession makes the voters candidates for the leadership of the log one after another when the leader is
// silent. The engine's own timeouts, which are random between one election timeout and two, remain in effect
// in case that the peers whose turn comes first cannot lead.
//
// A peer becomes a candidate when its leader has been silent for an election timeout, and for turnTicks
// ticks more for each voter whose turn comes earlier. So usually only one candidate at a time asks for
// votes, soon after the other voters may vote (holdsVote).
type succession struct {
	askedAt     time.Duration // when this peer last became a candidate because it was its turn
	silentSince time.Duration // the value of Core.followedAt at that time, which identifies the silence
}

// turnTicks is the number of ticks between the turns of two voters. A successful election takes less time,
// unless the disks or the network are slow. It is also the interval at which a candidate asks for votes again:
// a voter whose last tick was some time ago ignores the first requests, because for it the leader has not been
// silent long enough.
const turnTicks = 2

// campaignInTurn makes this peer a candidate if its turn has come.
func (s *succession) campaignInTurn(c *Core, now time.Duration) {
	if c.followedAt == 0 || c.removed != nil || c.stall.stalled || !c.replica.Members.IsVoter(c.self) {
		return
	}
	late := now - c.followedAt - c.cfg.Election - time.Duration(c.votersBefore()*turnTicks)*c.cfg.Tick
	if late < 0 || late > c.cfg.Election {
		return
	}
	state := c.rn.BasicStatus().RaftState
	first := s.silentSince != c.followedAt && state == raft.StateFollower
	again := state == raft.StatePreCandidate && now-s.askedAt >= turnTicks*c.cfg.Tick
	if first || again {
		s.silentSince, s.askedAt = c.followedAt, now
		_ = c.rn.Campaign() // the engine ignores Campaign if this peer cannot be elected
	}
}

// votersBefore returns the number of voters whose turn comes before the turn of this peer. The turns follow
// the peers' numbers in ascending order, beginning after the number of the leader that this peer followed
// last, and continuing with the smallest number after the greatest.
func (c *Core) votersBefore() (n int) {
	leader := c.expiry.lastFollowed.lead
	for _, v := range c.replica.Members.Voters {
		if d := v.Raft - leader; d != 0 && d < c.self-leader {
			n++
		}
	}
	return n
}
