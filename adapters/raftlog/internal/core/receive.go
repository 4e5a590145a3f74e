package core

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// A frame between peers is a type, the sender's wall clock in milliseconds, and a body.
const (
	frameRaft      = 1 // a message of the engine
	frameRequest   = 2 // a request for the leader
	frameReply     = 3 // its answer
	frameAnnounce  = 4 // who the sender is, and how far its log goes
	frameWelcome   = 5 // the answer of a leader to an announcement
	frameMoved     = 6 // the answer to one that was removed: who the peers are now
	frameHistory   = 7 // the checksum of what the sender has applied
	frameFull      = 8 // the sender's disk has no room for entries
	frameHeader    = 1 + 8
	transferReason = "CampaignTransfer" // the engine's word in votes of a transfer
)

var errFrame = errors.New("malformed frame")

func (c *Core) frame(kind byte, body []byte) []byte {
	b := make([]byte, 0, frameHeader+len(body))
	b = append(b, kind)
	b = binary.BigEndian.AppendUint64(b, uint64(c.cfg.Clock.Wall().UnixMilli()))
	return append(b, body...)
}

// send gives a message of the engine on to its receiver.
func (c *Core) send(m *raftpb.Message) {
	if m.GetType() == raftpb.MsgSnap {
		to, found := c.peerOf(m.GetTo())
		if !found {
			return
		}
		body, err := marshal(m)
		if err == nil {
			c.out.Snapshots = append(c.out.Snapshots, SendSnapshot{
				To: to, Frame: c.frame(frameRaft, body), Index: m.GetSnapshot().GetMetadata().GetIndex(),
			})
		}
		return
	}
	if c.behind.silent(c) {
		return
	}
	if s, ok := c.encode(m); ok {
		c.out.Send = append(c.out.Send, s)
	}
}

// encode makes a frame of a message of the engine; false if nobody knows its receiver.
func (c *Core) encode(m *raftpb.Message) (Send, bool) {
	to, found := c.peerOf(m.GetTo())
	if !found {
		return Send{}, false
	}
	b := make([]byte, frameHeader, frameHeader+proto.Size(m))
	b[0] = frameRaft
	binary.BigEndian.PutUint64(b[1:], uint64(c.cfg.Clock.Wall().UnixMilli()))
	b, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(b, m)
	if err != nil {
		panic(Fault{fmt.Errorf("encode a message: %w", err)})
	}
	urgent := m.GetType() != raftpb.MsgApp && m.GetType() != raftpb.MsgAppResp
	return Send{To: to, Urgent: urgent, Frame: b}, true
}

func (c *Core) sendFrame(to string, kind byte, body []byte) {
	c.out.Send = append(c.out.Send, Send{To: to, Urgent: kind != frameRequest, Frame: c.frame(kind, body)})
}

// Receive takes a frame from a peer whose ID was proven. An error says that it was malformed,
// or not the sender's to send; it is for the log.
//
// Whoever has proven to belong to the cluster is heard, in this peer's configuration or not:
// the configuration may be an old one. But for those that were removed: their IDs are never
// used again.
func (c *Core) Receive(from string, frame []byte) error { return c.receive(from, frame, nil) }

// ReceiveSnapshot takes the frame that came with a snapshot, which is on the disk by now, and
// ends with that entry. If the engine wants it, the next Take has a [Work] for it; if not, or
// after an error, it can be deleted.
func (c *Core) ReceiveSnapshot(from string, frame []byte, index, term uint64) error {
	return c.receive(from, frame, &position{index, term})
}

// receive takes a frame, with the end of the snapshot that came with it, if there is one.
func (c *Core) receive(from string, frame []byte, snapshot *position) error {
	defer contain()
	if len(frame) < frameHeader {
		return fmt.Errorf("%w of %d bytes from %s", errFrame, len(frame), from)
	}
	if c.tables.Members.IsRemoved(from) {
		if frame[0] == frameAnnounce {
			c.contact.sendMoved(c, from)
		}
		return nil
	}
	sender := c.contact.number(c, from)
	c.contact.clock(c, sender, time.UnixMilli(int64(binary.BigEndian.Uint64(frame[1:]))))
	body := frame[frameHeader:]
	switch frame[0] {
	case frameRaft:
		return c.receiveRaft(from, sender, body, snapshot)
	case frameRequest:
		return c.props.received(c, from, body)
	case frameReply:
		return c.props.answered(c, body)
	case frameAnnounce:
		return c.contact.announced(c, from, body)
	case frameWelcome:
		return c.contact.welcomed(c, body)
	case frameMoved:
		return c.contact.moved(c, body)
	case frameFull:
		c.space.reported[sender] = c.now()
		return nil
	case frameHistory:
		return c.agree.received(c, sender, body)
	}
	return fmt.Errorf("%w of type %d from %s", errFrame, frame[0], from)
}

func (c *Core) receiveRaft(from string, sender uint64, body []byte, snapshot *position) error {
	m := &raftpb.Message{}
	if err := proto.Unmarshal(body, m); err != nil {
		return fmt.Errorf("%w from %s: %w", errFrame, from, err)
	}
	if m.GetFrom() != sender || m.GetTo() != c.self {
		return fmt.Errorf("%w from %s: a message of %x for %x", errFrame, from, m.GetFrom(), m.GetTo())
	}
	if (snapshot != nil) != (m.GetType() == raftpb.MsgSnap) {
		return fmt.Errorf("%w from %s: %v comes with a snapshot: %t", errFrame, from, m.GetType(), snapshot != nil)
	}
	if meta := m.GetSnapshot().GetMetadata(); snapshot != nil && *snapshot != (position{meta.GetIndex(), meta.GetTerm()}) {
		return fmt.Errorf("%w from %s: it announces a snapshot of entry %d in term %d, and the file is of entry %d in term %d",
			errFrame, from, meta.GetIndex(), meta.GetTerm(), snapshot.index, snapshot.term)
	}
	switch m.GetType() {
	case raftpb.MsgProp, raftpb.MsgHup, raftpb.MsgTransferLeader, raftpb.MsgForgetLeader:
		return fmt.Errorf("%w from %s: %v", errFrame, from, m.GetType())
	case raftpb.MsgVote, raftpb.MsgPreVote:
		if c.held() && string(m.GetContext()) != transferReason {
			return nil
		}
	case raftpb.MsgHeartbeat, raftpb.MsgApp, raftpb.MsgSnap:
		if m.GetType() == raftpb.MsgApp && len(m.GetEntries()) > 0 && (c.backlog.leavesOut(c) || c.space.full) {
			return nil
		}
		// A heartbeat has no commit index behind what this peer has acknowledged. The engine would
		// end by a panic that does not say what can be done.
		if m.GetType() == raftpb.MsgHeartbeat && m.GetTerm() >= c.rn.BasicStatus().GetTerm() && c.contact.lacks(c, m.GetCommit()) {
			return nil
		}
		c.step(m)
		if c.rn.BasicStatus().Lead == sender {
			c.promised = c.now()
		}
		return nil
	case raftpb.MsgReadIndex:
		if c.rn.BasicStatus().RaftState != raft.StateLeader || !c.expiry.asks(c, sender) {
			return nil // the engine of one that leads no more would send it on, in the asker's name
		}
	}
	c.step(m)
	return nil
}

// held tells whether this peer does not vote, because it may have confirmed a leader a moment
// ago, and promised so to vote for nobody else for an election timeout. The engine does not
// keep that promise over a restart; nor when it hears of a newer term, be it from one who was
// not elected in it. Nor does one vote that has led until now, of which nothing has followed yet
// (turn).
func (c *Core) held() bool {
	if c.state == raft.StateLeader && c.rn.BasicStatus().RaftState != raft.StateLeader {
		return true
	}
	if now := c.now(); now-c.started < c.cfg.Election*101/100 {
		return !c.cfg.Disabled.Has(replica.CheckVoteHold)
	} else {
		return c.promised != 0 && now-c.promised < c.cfg.Election-c.cfg.Tick
	}
}
