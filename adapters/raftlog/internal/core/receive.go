package core

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// A frame between peers consists of a type, the sender's wall clock in milliseconds, and a body.
const (
	frameRaft     = 1  // a message of the engine
	frameRequest  = 2  // a request that the sender forwards to the leader
	frameReply    = 3  // the leader's reply to a forwarded request
	frameAnnounce = 4  // introduces the sender to the leader
	frameWelcome  = 5  // the leader's reply to an announcement
	frameMembers  = 6  // the members, for a removed peer or a peer that has asked for them
	frameHistory  = 7  // checksums of the entries that the sender has applied
	frameFull     = 8  // the sender has no disk space for entries
	framePassedOn = 9  // an announcement that a follower passes on to the leader
	frameRejected = 10 // the leader's reply to an announcement that it does not accept; contains the reason

	frameAskMembers = 11 // asks for the members, because the sender has received a frame of an unknown peer
	frameHeader     = 1 + 8
)

// errFrame is wrapped by the errors for frames that no peer of this version sends.
var errFrame = errors.New("malformed frame")

func (c *Core) encodeFrame(kind byte, body []byte) []byte {
	b := make([]byte, 0, frameHeader+len(body))
	b = append(b, kind)
	b = binary.BigEndian.AppendUint64(b, uint64(c.cfg.Clock.Wall().UnixMilli()))
	return append(b, body...)
}

func (c *Core) sendFrame(to string, kind byte, body []byte) {
	c.output.Frames = append(c.output.Frames, Frame{To: to, Urgent: kind != frameRequest, Data: c.encodeFrame(kind, body)})
}

// sendToPeers sends a frame to each peer that this peer knows.
func (c *Core) sendToPeers(kind byte, body []byte) {
	last := "" // the peer of the previous iteration: Peers can return two addresses of one peer in succession
	for _, p := range c.Peers() {
		if p.ID != last {
			c.sendFrame(p.ID, kind, body)
		}
		last = p.ID
	}
}

// sendMessage sends a message of the engine to another peer, now or after a short delay.
func (c *Core) sendMessage(m *raftpb.Message) {
	if m.GetType() == raftpb.MsgSnap {
		to, found := c.peerOf(m.GetTo())
		if !found {
			return
		}
		body, err := marshal(m)
		if err == nil {
			c.output.Snapshots = append(c.output.Snapshots, SendSnapshot{
				To: to, Frame: c.encodeFrame(frameRaft, body), Index: m.GetSnapshot().GetMetadata().GetIndex(),
			})
		}
		return
	}
	if m.GetType() == raftpb.MsgReadIndexResp {
		c.notices.sendTo(c, m.GetTo())
	}
	if !c.notices.delayMessage(c, m) {
		c.sendWithoutDelay(m)
	}
}

// sendWithoutDelay sends a message of the engine, unless this peer sends no messages because its disk
// is stalled.
func (c *Core) sendWithoutDelay(m *raftpb.Message) {
	if c.stall.suppressesMessages(c) {
		return
	}
	if f, ok := c.encodeMessage(m); ok {
		c.output.Frames = append(c.output.Frames, f)
	}
}

// encodeMessage returns the frame of a message of the engine, and false if the receiver is unknown.
func (c *Core) encodeMessage(m *raftpb.Message) (Frame, bool) {
	to, found := c.peerOf(m.GetTo())
	if !found {
		return Frame{}, false
	}
	b := make([]byte, frameHeader, frameHeader+proto.Size(m))
	b[0] = frameRaft
	binary.BigEndian.PutUint64(b[1:], uint64(c.cfg.Clock.Wall().UnixMilli()))
	b, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(b, m)
	if err != nil {
		panic(Fault{fmt.Errorf("encode a message: %w", err)})
	}
	urgent := m.GetType() != raftpb.MsgApp && m.GetType() != raftpb.MsgAppResp
	return Frame{To: to, Urgent: urgent, Data: b}, true
}

// Receive handles a frame of a peer whose ID the transport has authenticated. The error describes why
// the frame is malformed, or why the sender must not send it. Callers only log the error.
//
// A peer that is not a member can only announce itself. Frames of removed peers are not accepted,
// because the IDs of removed peers are never used again.
func (c *Core) Receive(from string, frame []byte) error { return c.receiveFrame(from, frame, nil) }

// ReceiveSnapshot handles the frame that precedes a snapshot, after the snapshot was received. The
// snapshot is on disk, and its last entry has the given index and term. If the engine needs the
// snapshot, the next output contains a [Write] that installs it. Otherwise, and after an error, the
// caller may delete the snapshot.
func (c *Core) ReceiveSnapshot(from string, frame []byte, index, term uint64) error {
	return c.receiveFrame(from, frame, &position{index, term})
}

// receiveFrame handles a frame. snapshot identifies the last entry of the snapshot that was received
// with the frame, or is nil.
func (c *Core) receiveFrame(from string, frame []byte, snapshot *position) error {
	defer containPanic()
	if len(frame) < frameHeader {
		return fmt.Errorf("%w from %s: the frame has %d bytes, and at least %d are required", errFrame, from, len(frame), frameHeader)
	}
	if c.replica.Members.IsRemoved(from) {
		if frame[0] == frameAnnounce {
			c.sendRemoved(from)
		}
		return nil
	}
	if !c.senders.acceptsFrame(c, from, frame[0]) {
		return nil
	}
	sender := c.names.numberOf(from)
	c.peerClocks.recordPeerTime(c, sender, time.UnixMilli(int64(binary.BigEndian.Uint64(frame[1:]))))
	body := frame[frameHeader:]
	switch frame[0] {
	case frameRaft:
		return c.receiveMessage(from, sender, body, snapshot)
	case frameRequest:
		return c.proposals.receiveRequest(c, from, body)
	case frameReply:
		return c.proposals.receiveReply(c, body)
	case frameAnnounce:
		return c.admission.receiveAnnouncement(c, from, body)
	case framePassedOn:
		return c.admission.receivePassedOn(c, from, body)
	case frameWelcome:
		return c.admission.receiveWelcome(c, sender, body)
	case frameRejected:
		return c.admission.receiveRejected(c, from, body)
	case frameMembers:
		return c.senders.receiveMembers(c, body)
	case frameAskMembers:
		c.receiveAskMembers(from)
		return nil
	case frameFull:
		c.space.reported[sender] = c.now()
		return nil
	case frameHistory:
		return c.agreement.receiveSums(c, sender, body)
	}
	return fmt.Errorf("%w from %s: unknown type %d", errFrame, from, frame[0])
}

// receiveMessage checks a message of the engine and passes it to the engine.
func (c *Core) receiveMessage(from string, sender uint64, body []byte, snapshot *position) error {
	m, err := decodeMessage(body)
	if err != nil {
		return fmt.Errorf("%w from %s: %w", errFrame, from, err)
	}
	if m.GetFrom() != sender || m.GetTo() != c.self {
		return fmt.Errorf("%w from %s: the message is from peer %x to peer %x, and not from %x to %x", errFrame, from, m.GetFrom(), m.GetTo(), sender, c.self)
	}
	switch isSnapshot := m.GetType() == raftpb.MsgSnap; {
	case snapshot != nil && !isSnapshot:
		return fmt.Errorf("%w from %s: %v was sent with a snapshot", errFrame, from, m.GetType())
	case snapshot == nil && isSnapshot:
		return fmt.Errorf("%w from %s: %v was sent without a snapshot", errFrame, from, m.GetType())
	}
	if meta := m.GetSnapshot().GetMetadata(); snapshot != nil && *snapshot != (position{meta.GetIndex(), meta.GetTerm()}) {
		return fmt.Errorf("%w from %s: the frame announces a snapshot of entry %d in term %d, and the file is of entry %d in term %d",
			errFrame, from, meta.GetIndex(), meta.GetTerm(), snapshot.index, snapshot.term)
	}
	switch m.GetType() {
	case raftpb.MsgProp, raftpb.MsgHup, raftpb.MsgTransferLeader, raftpb.MsgForgetLeader:
		return fmt.Errorf("%w from %s: peers do not send messages of type %v", errFrame, from, m.GetType())
	case raftpb.MsgVote, raftpb.MsgPreVote:
		if c.holdsVote() && string(m.GetContext()) != transferReason {
			return nil
		}
	case raftpb.MsgHeartbeat, raftpb.MsgApp, raftpb.MsgSnap:
		if m.GetType() == raftpb.MsgApp && len(m.GetEntries()) > 0 && (c.backlog.dropsAppends(c) || c.space.full) {
			return nil
		}
		// If the heartbeat's commit index is greater than the index up to which this peer has entries, this
		// peer has lost entries. Report the loss here, because the engine would panic with a message that
		// names no remedy.
		if m.GetType() == raftpb.MsgHeartbeat && m.GetTerm() >= c.rn.BasicStatus().GetTerm() && c.detectLostLog(m.GetCommit()) {
			return nil
		}
		c.stepEngine(m)
		if c.rn.BasicStatus().Lead == sender {
			c.followedAt = c.now()
		}
		return nil
	case raftpb.MsgReadIndex:
		// Pass the request to the engine only on the leader: the engine of a former leader would forward it to
		// another peer, with the original sender as the sender.
		if c.rn.BasicStatus().RaftState != raft.StateLeader || !c.expiry.recordRequest(c, sender) {
			return nil
		}
	}
	c.stepEngine(m)
	return nil
}
