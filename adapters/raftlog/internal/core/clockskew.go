package core

import (
	"slices"
	"time"
)

// peerClocks contains the last known wall clocks of other peers, by the numbers of the peers.
type peerClocks struct {
	times     map[uint64]peerTime
	checkedAt time.Duration // when handOverIfClockWrong last compared the clocks
}

// peerTime is the time of another peer's wall clock according to the last frame of that peer.
type peerTime struct {
	wall       time.Time
	receivedAt time.Duration
}

// maxSkew is the maximum difference between the wall clock of a leader and the wall clocks of most
// other voters, above which the leader hands over. The leader's clock decides whether request IDs are
// within the window.
const maxSkew = 5 * time.Minute

// recordPeerTime stores the time of another peer's wall clock, which the peer has sent in a frame.
func (k *peerClocks) recordPeerTime(c *Core, peer uint64, wall time.Time) {
	k.times[peer] = peerTime{wall, c.now()}
}

// peerAhead returns how far the wall clock of another peer is ahead of the wall clock of this peer. It
// returns false if the other peer has sent no frame in the last two election timeouts. The age of the
// frame is measured by the monotonic clock, because the wall clock of this peer may have jumped since.
func (k *peerClocks) peerAhead(c *Core, peer uint64) (time.Duration, bool) {
	t, known := k.times[peer]
	now := c.now()
	if !known || now-t.receivedAt > 2*c.cfg.Election {
		return 0, false
	}
	return t.wall.Add(now - t.receivedAt).Sub(c.cfg.Clock.Wall()), true
}

// ClockSkew returns how far the wall clocks of most voters are ahead of the wall clock of this peer. It
// returns 0 unless this peer knows the wall clocks of a majority of the voters, and of at least two
// other voters.
func (c *Core) ClockSkew() time.Duration {
	ahead := make([]time.Duration, 1, 8)
	for _, p := range c.replica.Members.Voters {
		if d, known := c.peerClocks.peerAhead(c, p.Raft); known && p.Raft != c.self {
			ahead = append(ahead, d)
		}
	}
	if len(ahead) <= len(c.replica.Members.Voters)/2 || len(ahead) < 3 {
		return 0
	}
	slices.Sort(ahead)
	return ahead[len(ahead)/2]
}

// handOverIfClockWrong hands over leadership if the wall clock of this leader differs too much from the wall
// clocks of most voters. With a wrong clock, the leader would consider all request IDs stale, or too far in
// the future. handOverIfClockWrong compares the clocks once in each election timeout.
func (k *peerClocks) handOverIfClockWrong(c *Core, now time.Duration) {
	if !c.proposals.ready || now < k.checkedAt+c.cfg.Election {
		return
	}
	k.checkedAt = now
	if ahead := c.ClockSkew(); ahead.Abs() > maxSkew {
		c.cfg.Logger.Warn("clock of this peer differs from the others: handing over leadership", "behind", ahead)
		c.HandOver()
	}
}

// entryTime returns the time that a leader writes into entries: the time of its own wall clock, or the time
// of most voters' wall clocks if its own clock is wrong. The clock of the log never goes back, so a single
// entry with a wrong time, even the entry of a hand-over, would make all later request IDs stale.
func (c *Core) entryTime() time.Time {
	wall := c.cfg.Clock.Wall()
	if ahead := c.ClockSkew(); ahead.Abs() > maxSkew {
		return wall.Add(ahead)
	}
	return wall
}
