package core

import (
	"math"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// notices delays the messages without entries by which a leader tells the other peers that entries are
// committed. The next message with entries contains the same commit index, so that under load a peer
// receives one message for each batch of entries instead of two, and sends one reply.
//
// The leader sends such a message without a delay if the receiver needs it for more than the progress of its
// state machine: after an entry that changes elections or members or begins a term, and before a reply to a
// request of the receiver.
type notices struct {
	delayed []notice // the delayed messages, at most one for each receiver, the oldest first
}

// notice is a message without entries whose sending the leader delays.
type notice struct {
	message *raftpb.Message
	since   time.Duration // when the leader passed the message to delayMessage
}

// noticeDelay is the maximum time by which the leader delays a message without entries.
const noticeDelay = time.Millisecond

// delayMessage decides whether to delay a message of the leader, and reports whether it has delayed the
// message. If the message replaces a delayed message to the same receiver, delayMessage removes the
// delayed one.
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

// send sends those delayed messages for which the function which returns true, unless they are of an earlier
// term.
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

// sendTo sends the delayed message to the given peer, if there is one.
func (n *notices) sendTo(c *Core, peer uint64) {
	n.send(c, func(d notice) bool { return d.message.GetTo() == peer })
}

// sendDue sends the messages that have been delayed for at least noticeDelay.
func (n *notices) sendDue(c *Core) {
	if len(n.delayed) > 0 {
		now := c.now()
		n.send(c, func(d notice) bool { return now-d.since >= noticeDelay })
	}
}

// UntilNotice returns the time until the caller must call [Core.TakeOutput], so that a delayed message
// is sent. Without a delayed message, UntilNotice returns the maximum duration.
func (c *Core) UntilNotice() time.Duration {
	if len(c.notices.delayed) == 0 {
		return math.MaxInt64
	}
	return max(0, c.notices.delayed[0].since+noticeDelay-c.now())
}
