package core

import (
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// Output is the work that a Core requests from its caller. The caller must handle the elements of each
// slice in order.
type Output struct {
	Frames    []Frame
	Writes    []*Write
	Apply     []Apply
	Replies   []Reply
	Snapshots []SendSnapshot
	// Elections are the names of the elections that have changed. [Core.Replica] contains their new
	// state.
	Elections []string
	// Ended are the IDs of the candidates of this peer whose elections were ended.
	Ended []string
	// AllElections reports that any election may have changed, because a snapshot has replaced the
	// state.
	AllElections bool
	// PeersChanged reports that the result of [Core.Peers] has changed.
	PeersChanged bool
	// Instances are the directory IDs of peers that other peers have sent, by peer ID (package
	// identity).
	Instances []map[string]string
	// LostLog is not nil if this peer has acknowledged an entry that its log does not contain,
	// according to a leader. The peer must stop, and must never vote again.
	LostLog error
}

// Frame is a frame that the caller must send to a peer.
type Frame struct {
	To     string
	Urgent bool // whether the frame must overtake others, as votes and heartbeats must
	Data   []byte

	isVote bool // whether the frame reports the vote of this peer, so that it need not wait for entries to be durable
}

// SendSnapshot is a request to send a frame and then the newest snapshot to a peer. The caller reports
// the result by [Core.ReportSnapshotSent].
type SendSnapshot struct {
	To    string
	Frame []byte
	Index uint64 // the index of the snapshot to send
}

// Write is a request to write to the disk. The caller calls [Core.ReportStored] when the Write and all
// earlier Writes are durable. It may write several Writes together.
type Write struct {
	// Snapshot, if not nil, must be written first: the received snapshot with this index replaces the
	// newest snapshot on the disk, and the log restarts after that index.
	Snapshot  *raftpb.Snapshot
	HardState *raftpb.HardState
	Entries   []*raftpb.Entry
	// Sync is false if it suffices that this Write becomes durable together with the next Write whose Sync is
	// true.
	Sync bool
	// Compact, if not 0, is the index up to which the caller removes entries from the log.
	Compact uint64

	// Frames must be sent when the Write is durable. A caller that sends them before it calls
	// ReportStored sets Sent.
	Frames []Frame
	Sent   bool

	ownMessages []*raftpb.Message // messages to this peer's own engine, which handles them when the Write is durable
}

// CanWait reports whether the Write contains only a hard state that may be written with the next Write,
// or when the peer stops: a newer commit index, and, after a heartbeat of a new leader, a newer term
// without a vote. No message and no reply depends on such a hard state.
func (w *Write) CanWait() bool {
	return !w.Sync && w.HardState != nil && len(w.Entries) == 0 && w.Snapshot == nil && w.Compact == 0
}

// Apply is a request to the state machine. Exactly one of the fields Through, Restore and Create is
// set.
type Apply struct {
	// Through is the index of the last entry to apply. Updates are those entries up to Through that
	// change the state of the state machine, in order.
	Through uint64
	Updates []api.Entry
	// Restore is the index of an installed snapshot, which replaces the state of the state machine.
	Restore uint64
	// Create requests a snapshot of the current state of the state machine. The caller calls
	// [Core.ReportSnapshotCreated] or [Core.ReportSnapshotFailed].
	Create *CreateSnapshot
	// Replies must be sent when the state machine has completed this Apply.
	Replies []Reply
}

// CreateSnapshot describes the snapshot that the caller should create.
type CreateSnapshot struct {
	Index, Term uint64
	Conf        *raftpb.ConfState
	View        *replica.View
	Members     uint64 // the index of the last membership change that the snapshot contains
}

// Reply is the reply to a [Request], or to a call of Read or ReadReplica.
type Reply struct {
	Token uint64
	Index uint64
	Err   error
}

// TakeOutput returns the work that has arisen from the inputs since the previous call.
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
