package core

import (
	"math"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// notices delays the messages by which a leader tells the other peers that entries are committed, and
// which contain no entries. The next entries contain the same commit index, so that under load a
// peer receives one message for each batch of entries instead of two, and sends one reply.
//
// Such a message is sent without a delay if more depends on it than the state machine of the
// receiver: after an entry of elections, members or a new leader, and before a reply to a request
// that the receiver has made.
type notices struct {
	delayed []notice // the delayed notices, at most one for each peer, the oldest first
}

// notice is a delayed message without entries.
type notice struct {
	message *raftpb.Message
	since   time.Duration // when the delay began
}

// noticeDelay is the maximum delay.
const noticeDelay = time.Millisecond

// delayMessage delays a message of the leader, or removes a delayed one if this message replaces it. It
// reports whether the message is delayed.
func (n *notices) delayMessage(c *Core, m *raftpb.Message) bool {
	if m.GetType() != raftpb.MsgApp {
		return false
	}
	n.delayed = slices.DeleteFunc(n.delayed, func(d notice) bool { return d.message.GetTo() == m.GetTo() })
	if len(m.GetEntries()) > 0 {
		return false
	}
	n.delayed = append(n.delayed, notice{m, c.now()})
	return true
}

// send sends the delayed messages that satisfy a condition.
func (n *notices) send(c *Core, which func(notice) bool) {
	kept := n.delayed[:0]
	for _, d := range n.delayed {
		switch {
		case !which(d):
			kept = append(kept, d)
		case c.state == raft.StateLeader && d.message.GetTerm() == c.term:
			c.sendWithoutDelay(d.message)
		}
	}
	clear(n.delayed[len(kept):])
	n.delayed = kept
}

// sendAll sends all delayed messages.
func (n *notices) sendAll(c *Core) { n.send(c, func(notice) bool { return true }) }

// sendTo sends the delayed message for a peer, if there is one.
func (n *notices) sendTo(c *Core, peer uint64) {
	n.send(c, func(d notice) bool { return d.message.GetTo() == peer })
}

// sendDue sends the messages that were delayed for noticeDelay.
func (n *notices) sendDue(c *Core) {
	if len(n.delayed) > 0 {
		now := c.now()
		n.send(c, func(d notice) bool { return now-d.since >= noticeDelay })
	}
}

// UntilNotice returns the time until a delayed message must be sent, by [Core.TakeOutput]. If there is
// none, it returns the maximum duration.
func (c *Core) UntilNotice() time.Duration {
	if len(c.notices.delayed) == 0 {
		return math.MaxInt64
	}
	return max(0, c.notices.delayed[0].since+noticeDelay-c.now())
}
