package core

import (
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// Output is the work that a peer requests from its caller. The elements of each slice must be
// handled in order.
type Output struct {
	Frames    []Frame
	Writes    []*Write
	Apply     []Apply
	Replies   []Reply
	Snapshots []SendSnapshot
	// Elections are the names of the elections that have changed; [Core.Replica] contains their new
	// state.
	Elections []string
	// Ended are the candidates of this peer whose elections were ended.
	Ended []string
	// AllElections reports that any election may have changed, because a snapshot was installed.
	AllElections bool
	// PeersChanged reports that the result of [Core.Peers] has changed.
	PeersChanged bool
	// Instances are the instances that other peers know, by the IDs of their peers.
	Instances []map[string]string
	// LostLog is set if a leader reports that this peer has acknowledged an entry that its log does
	// not contain. The peer must stop, and must not vote again.
	LostLog error
}

// Frame is a frame to send to a peer.
type Frame struct {
	To     string
	Urgent bool // the frame must overtake others, because it is a vote, a heartbeat or the like
	Data   []byte

	isVote bool // the frame reports the vote of this peer, and depends on no entry
}

// SendSnapshot is a request to send a frame and the newest snapshot. The caller reports the result
// by [Core.ReportSnapshotSent].
type SendSnapshot struct {
	To    string
	Frame []byte
	Index uint64 // the index of the snapshot
}

// Write is a request to write to the disk. When it and all earlier Writes are durable, the caller
// calls [Core.ReportStored]. Several Writes may be written together.
type Write struct {
	// Snapshot, if set, is written first: the received snapshot with its index replaces the newest
	// snapshot, and the log restarts after it.
	Snapshot  *raftpb.Snapshot
	HardState *raftpb.HardState
	Entries   []*raftpb.Entry
	// Sync is false if the data need not be durable before later data is.
	Sync bool
	// Compact, if not 0, removes the entries up to that index from the log.
	Compact uint64

	// Frames are sent when the data is durable. A caller that sends them before it calls
	// ReportStored sets Sent.
	Frames []Frame
	Sent   bool

	ownMessages []*raftpb.Message // messages to this peer's engine that are handled when the data is durable
}

// CanWait reports whether the Write contains only a hard state that may be written with the next Write,
// or when the peer stops: a newer commit index, and, after a heartbeat of a new leader, a newer term
// without a vote. Nothing depends on such a hard state.
func (w *Write) CanWait() bool {
	return !w.Sync && w.HardState != nil && len(w.Entries) == 0 && w.Snapshot == nil && w.Compact == 0
}

// Apply is a request to the state machine. Exactly one of Through, Restore and Create is set.
type Apply struct {
	// Through is the index of the last entry to apply. Updates are the entries up to it that change the
	// state of the state machine, in order.
	Through uint64
	Updates []api.Entry
	// Restore is the index of an installed snapshot that replaces the state.
	Restore uint64
	// Create requests a snapshot of the current state. The caller calls
	// [Core.ReportSnapshotCreated] or [Core.ReportSnapshotFailed].
	Create *CreateSnapshot
	// Replies are sent when the state machine has completed the request.
	Replies []Reply
}

// CreateSnapshot describes a snapshot to create.
type CreateSnapshot struct {
	Index, Term uint64
	Conf        *raftpb.ConfState
	View        *replica.View
	Members     uint64 // the index of the membership
}

// Reply is the reply to a [Request].
type Reply struct {
	Token uint64
	Index uint64
	Err   error
}

// TakeOutput returns the work that follows from the inputs since the last call.
func (c *Core) TakeOutput() Output {
	defer containPanic()
	if c.candidates.due {
		c.candidates.reconcileCandidates(c, c.now())
	}
	c.proposals.flushBatch(c)
	for c.rn.HasReady() {
		c.handleReady(c.rn.Ready())
		c.proposals.flushBatch(c)
	}
	c.notices.sendDue(c)
	c.proposals.now = time.Time{}
	output := c.output
	c.output = Output{}
	return output
}
