package core

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// Out is what is to be done. The elements of each slice are done in order.
type Out struct {
	Send      []Send
	Disk      []*Work
	Apply     []Apply
	Replies   []Reply
	Snapshots []SendSnapshot
	// Elections are those whose lines have changed; see [Core.Tables].
	Elections []string
	// Ended are the candidates of this peer that stood in a line when its election was ended.
	Ended []string
	// AllElections says that any may have changed: the tables came from a snapshot.
	AllElections bool
	// Peers says that [Core.Peers] has changed.
	Peers bool
	// Instances are data directories that other peers know, by their peers' IDs.
	Instances []map[string]string
	// LostLog is set when a leader knows that this peer has acknowledged an entry that its
	// log does not have: it must stop, and not vote again.
	LostLog error
}

// Send is a frame for a peer.
type Send struct {
	To     string
	Urgent bool // a vote, a heartbeat or the like: before what waits
	Frame  []byte

	vote bool // it says how this peer has voted, and nothing of entries
}

// SendSnapshot asks to send the newest snapshot on disk, with this frame before it; the
// outcome is told by [Core.SnapshotSent].
type SendSnapshot struct {
	To    string
	Frame []byte
	Index uint64
}

// Work is for the disk. When all of it is durable, and that of all Work before it,
// [Core.Stored] is called with it. Several may be written at once.
type Work struct {
	// Snapshot, if set, is written first: the received snapshot with that index takes the
	// place of the newest one, and the log begins anew after it.
	Snapshot  *raftpb.Snapshot
	HardState *raftpb.HardState
	Entries   []*raftpb.Entry
	// Sync is false for what need not be durable by itself.
	Sync bool
	// Compact, if not 0, has the log forget the entries through that index.
	Compact uint64

	// Send is what others are told once it is durable. Whoever has sent it before calling
	// Stored says so by Sent.
	Send []Send
	Sent bool

	own []*raftpb.Message // what this peer is told then
}

// Apply is for the state machine. Exactly one of its fields is set.
type Apply struct {
	// Outcomes are applied; those that are skipped only count.
	Outcomes []replica.Outcome
	// Restore has the state machine begin anew from the installed snapshot with that index.
	Restore uint64
	// Take has a snapshot written of what the state machine is at this point, after which
	// [Core.SnapshotTaken] is called.
	Take *Take
}

// Take is a snapshot to be.
type Take struct {
	Index, Term uint64
	Conf        *raftpb.ConfState
	Tables      *replica.View
	Members     uint64
}

// Reply answers a [Request].
type Reply struct {
	Token uint64
	Index uint64
	Err   error
}

// Take returns what is to be done, after inputs of any number.
func (c *Core) Take() Out {
	defer contain()
	if c.stand.due {
		c.stand.reconcile(c, c.now())
	}
	c.props.flush(c)
	for c.rn.HasReady() {
		c.handle(c.rn.Ready())
		c.props.flush(c)
	}
	out := c.out
	c.out = Out{}
	return out
}

// peerOf returns the ID of a peer by its number.
func (c *Core) peerOf(raft uint64) (string, bool) {
	if p, found := c.tables.Members.Find(raft); found {
		return p.ID, true
	}
	id, found := c.contact.names[raft]
	return id, found
}

// Membership is the peers as users see them.
func (c *Core) Membership() api.Membership {
	if c.contact.removed != nil {
		return *c.contact.removed
	}
	return c.tables.Members.Membership()
}
