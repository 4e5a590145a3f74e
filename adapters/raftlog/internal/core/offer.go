package core

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// snapshotOffer is what a peer knows about a snapshot from the frame that precedes the snapshot's data.
type snapshotOffer struct {
	from         string // the ID of the sender
	sender       uint64 // the number of the sender
	kind         raftpb.MessageType
	author, to   uint64 // the numbers of the message's author and of its receiver, according to the message
	term         uint64 // the term in which the author sent the message
	index        uint64 // the index of the last entry in the snapshot
	size         int64  // the size of the snapshot in bytes
	lead         uint64 // the number of the leader that this peer follows
	self         uint64
	ownTerm      uint64
	appliedIndex uint64 // the index of the last entry that this peer has applied
}

// check returns nil if this peer should receive the data of the snapshot, and otherwise an error that
// describes why not. Only the leader of the current term may send a snapshot, and only a snapshot that this
// peer needs. If this peer does not know the leader yet, it rejects the snapshot, and the leader sends the
// snapshot again later.
func (o snapshotOffer) check() error {
	switch {
	case o.kind != raftpb.MsgSnap || o.author != o.sender || o.to != o.self:
		return fmt.Errorf("%w from %s: %v from peer %x to peer %x does not announce a snapshot", errFrame, o.from, o.kind, o.author, o.to)
	case o.sender != o.lead || o.term != o.ownTerm:
		return fmt.Errorf("%w: %s is not the leader of term %d, and only the leader sends snapshots", api.ErrRefused, o.from, o.ownTerm)
	case o.index <= o.appliedIndex:
		return fmt.Errorf("%w: a snapshot of entry %d is not needed, because entry %d is applied", api.ErrInvalid, o.index, o.appliedIndex)
	case o.size <= 0:
		return fmt.Errorf("%w: the announced size of the snapshot is %d bytes", api.ErrInvalid, o.size)
	}
	return nil
}

// CheckSnapshot returns nil if this peer should receive the data of a snapshot, judging by the frame that
// precedes the data and by the size of the snapshot in bytes. Otherwise the error describes to the sender why
// not. CheckSnapshot changes nothing.
func (c *Core) CheckSnapshot(from string, frame []byte, size int64) error {
	m := &raftpb.Message{}
	if len(frame) < frameHeader || frame[0] != frameRaft || proto.Unmarshal(frame[frameHeader:], m) != nil {
		return fmt.Errorf("%w from %s: the frame does not announce a snapshot", errFrame, from)
	}
	status := c.rn.BasicStatus()
	return snapshotOffer{
		from: from, sender: c.names.numberOf(from), kind: m.GetType(), author: m.GetFrom(), to: m.GetTo(), term: m.GetTerm(),
		index: m.GetSnapshot().GetMetadata().GetIndex(), size: size,
		lead: status.Lead, self: c.self, ownTerm: status.GetTerm(), appliedIndex: c.replica.Index,
	}.check()
}
