package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
)

// senders decides which peers may send messages to this peer. A process that has the credentials of a
// peer can announce itself, so that the leader admits it. This peer accepts everything else only from
// members: peers that are members according to the log of this peer, its configuration, or another
// member. It asks members because it may have been disconnected while the members changed: then the
// leader can be a peer that its log does not contain, and only the leader sends the missing entries.
type senders struct {
	stated  api.Membership // the newest membership that another member has sent
	askedAt time.Duration  // when this peer last asked other peers for the members; 0 if it never did
	warned  time.Duration  // when this peer last logged a dropped frame; 0 if it never did
	// unapplied is the ID of a peer that becomes a member by an entry that was in the log at the time
	// unappliedAt, but not applied yet. The peer counts as a member only for an election timeout, because a
	// leader may still replace the entry.
	unapplied   string
	unappliedAt time.Duration
}

// maxUnapplied is the maximum size in bytes of the unapplied entries that unappliedMember reads.
const maxUnapplied = 8 << 20

// acceptsFrame reports whether this peer accepts a frame of the given peer, which is not removed. If this
// peer does not know the sender as a member, acceptsFrame asks the members that it knows.
func (s *senders) acceptsFrame(c *Core, from string, kind byte) bool {
	if kind == frameAnnounce || kind == frameAskMembers || s.isMember(c, from) {
		return true
	}
	if now := c.now(); c.removed == nil && (s.askedAt == 0 || now-s.askedAt >= c.cfg.Election/2) {
		s.askedAt = now
		if unappliedMember(c, from) {
			s.unapplied, s.unappliedAt = from, now
			return true
		}
		if s.warned == 0 || now-s.warned >= rejectionInterval {
			s.warned = now
			c.cfg.Logger.Warn("dropped a message of a peer that is not a member according to this peer's log: asking the members; "+
				"if it is a member and none of them answers, add it to the peers in the configuration of this peer", "remote", from)
		}
		c.sendToPeers(frameAskMembers, nil)
	}
	return false
}

// isMember reports whether a peer is a member according to the log, the configuration, or another
// member.
func (s *senders) isMember(c *Core, id string) bool {
	is := func(p api.Peer) bool { return p.ID == id }
	if _, member := c.replica.Members.FindID(id); member || slices.ContainsFunc(c.cfg.Seeds, is) {
		return true
	}
	if s.unapplied == id && c.now()-s.unappliedAt < c.cfg.Election {
		return true
	}
	return s.stated.Index > c.replica.Members.Index && slices.ContainsFunc(slices.Concat(s.stated.Voters, s.stated.Outgoing, s.stated.Learners), is)
}

// unappliedMember reports whether the log contains an entry that this peer has not applied, and that
// makes the given peer a member.
func unappliedMember(c *Core, id string) bool {
	last, err := c.cfg.Log.LastIndex()
	if err != nil || last <= c.replica.Index {
		return false
	}
	entries, err := c.cfg.Log.Entries(c.replica.Index+1, last+1, maxUnapplied)
	if err != nil {
		return false
	}
	for _, e := range entries {
		d, err := replica.DecodeEntry(e)
		if err != nil || d.Kind != api.KindConfig {
			continue
		}
		if change, err := replica.DecodeConfig(d.Data); err == nil && slices.ContainsFunc(change.Peers, func(p replica.Peer) bool { return p.ID == id }) {
			return true
		}
	}
	return false
}

// receiveAskMembers sends the members to a peer that has asked for them, because it received a frame of
// a peer that it does not know.
func (c *Core) receiveAskMembers(from string) {
	if m := c.Membership(); wire.CheckMembership(m) == nil {
		c.sendFrame(from, frameMembers, wire.AppendMembership(nil, m))
	}
}

// receiveMembers handles the membership that a member has sent. If this peer was removed according to
// it, this peer stops participating, and continues to report the members to its clients.
func (s *senders) receiveMembers(c *Core, body []byte) error {
	d := wire.Decoder{B: body}
	m := d.Membership()
	if err := d.End(); err != nil {
		return fmt.Errorf("%w: %w", errFrame, err)
	}
	if slices.Contains(m.Removed, c.cfg.Self.ID) {
		c.removed = &m
		c.proposals.failRemoved(c)
	}
	if m.Index > s.stated.Index {
		s.stated = m
	}
	return nil
}
