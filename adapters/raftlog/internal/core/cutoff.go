package core

import (
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// cutOff detects, as the leader, a voter that reaches other voters but not this leader, because a part of the
// network has failed, or because one of the two peers refuses connections of the other. Such a voter receives
// no entries, and cannot become the leader, because the other voters have a leader. So this leader transfers
// leadership to a peer that the voter reaches. If no voter reaches all others, transfers do not help, so a
// peer makes such a transfer only rarely.
type cutOff struct {
	voter        uint64
	since, last  time.Duration // when the first and last announcement of an uninterrupted series of the voter arrived
	handedOver   bool
	handedOverAt time.Duration // when this peer last transferred leadership because of a cut-off voter
}

const (
	// cutOffTimeouts is the number of election timeouts after which a leader considers a voter as cut
	// off. In this time the leader can write a new address of the voter into the log, and connect to
	// that address.
	cutOffTimeouts = 10
	// handOverTimeouts is the minimum number of election timeouts between two transfers by one leader
	// because of cut-off voters.
	handOverTimeouts = 100
)

// handlePassedOnAnnouncement records that peer by has passed on an announcement of peer from. If from
// is a voter that has been cut off for long, this leader hands over to by.
func (o *cutOff) handlePassedOnAnnouncement(c *Core, from, by uint64) {
	now := c.now()
	if c.state != raft.StateLeader || !c.replica.Members.IsVoter(from) || c.isActive(from) {
		return
	}
	switch {
	case now-o.last > 2*c.cfg.Election || o.voter == raft.None:
		o.voter, o.since = from, now
	case from != o.voter:
		return
	}
	o.last = now
	if now-o.since < cutOffTimeouts*c.cfg.Election || o.handedOver && now-o.handedOverAt < handOverTimeouts*c.cfg.Election {
		return
	}
	o.handedOver, o.handedOverAt, o.voter = true, now, raft.None
	voter, _ := c.peerOf(from)
	target, _ := c.peerOf(by)
	c.cfg.Logger.Warn("transferring leadership, because this leader does not reach a voter that another voter reaches", "voter", voter, "to", target)
	c.handOver(by)
}

// isActive reports whether a peer has replied to this leader since the engine last checked its
// followers, which it does once in an election timeout.
func (c *Core) isActive(id uint64) (active bool) {
	c.rn.WithProgress(func(other uint64, _ raft.ProgressType, pr tracker.Progress) {
		active = active || other == id && pr.RecentActive
	})
	return active
}
