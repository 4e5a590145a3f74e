package core

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
)

// TestReceiveRequest_RejectsOperationsOfLeader checks that a peer cannot request an operation that only a
// leader may propose, for example a deduplication window that excludes all request IDs.
func TestReceiveRequest_RejectsOperationsOfLeader(t *testing.T) {
	h, l := startCluster(t)
	from := h.otherPeers(l)[0]
	for _, op := range []replica.Op{
		{Do: replica.Window, Window: 1 << 62}, {Do: replica.Transfer}, {Do: replica.Expire, Peer: from.core.self}, {Do: 0},
	} {
		require.ErrorIs(t, l.core.Receive(from.self.ID, from.requestFrame(1, op)), errFrame, op.Do)
	}
	h.advance(50 * time.Millisecond)
	require.Equal(t, 7*time.Hour, l.core.replica.Window)
	require.NoError(t, h.request(l, update("")).Err)
}

// FuzzFrames decodes arbitrary bytes as each kind of frame of this package. The decoder rejects them,
// or decodes the same value again after encoding it.
func FuzzFrames(f *testing.F) {
	for _, frame := range sampleFrames() {
		f.Add(frame.body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if a, err := decodeAnnouncement(body); err == nil {
			again, err := decodeAnnouncement(a.encode())
			require.NoError(t, err)
			require.Equal(t, a, again)
		}
		if w, err := decodeWelcome(body); err == nil {
			again, err := decodeWelcome(w.encode())
			require.NoError(t, err)
			require.Equal(t, w, again)
		}
		if seq, r, err := decodeRequest(body); err == nil {
			seqAgain, again, err := decodeRequest(encodeRequest(seq, r))
			require.NoError(t, err)
			require.Equal(t, seq, seqAgain)
			require.Equal(t, r, again)
		}
		if seq, index, result, malformed := decodeReply(body); malformed == nil {
			seqAgain, indexAgain, resultAgain, err := decodeReply(encodeReply(seq, index, result))
			require.NoError(t, err)
			require.Equal(t, seq, seqAgain)
			require.Equal(t, index, indexAgain)
			require.Equal(t, result, resultAgain)
		}
	})
}

// sampleFrame is the kind and the body of a frame, without its header.
type sampleFrame struct {
	kind byte
	body []byte
}

func sampleFrames() []sampleFrame {
	id := api.RequestIDFrom(time.Unix(1_700_000_000, 0), 1, 2)
	return []sampleFrame{
		{frameRequest, encodeRequest(1, Request{Kind: api.KindState, ID: id, Data: []byte("x")})},
		{frameRequest, encodeRequest(1, Request{Kind: api.KindControl, ID: id, Op: replica.Op{Do: replica.Join, Election: "e", Candidate: "c"}})},
		{frameRequest, encodeRequest(1, Request{Kind: api.KindConfig, ID: id, Voters: []api.Peer{{ID: "a", Addr: "b"}}})},
		{frameReply, encodeReply(1, 2, &api.NotLeaderError{})},
		{frameAnnounce, announcement{nonce: 1, addr: "x:1", election: 200 * time.Millisecond, instances: map[string]string{"a": "b"}}.encode()},
		{frameWelcome, welcome{nonce: 1, match: 9}.encode()},
		{frameMembers, wire.AppendMembership(nil, api.Membership{Removed: []string{"p0"}})},
	}
}

// FuzzReceive checks that no frame, malformed or not, makes a leader or a follower panic with anything but a
// Fault. The engine may report a Fault for a message that contradicts its log. Each cluster serves 100
// inputs, because creating one takes long.
func FuzzReceive(f *testing.F) {
	for _, frame := range sampleFrames() {
		f.Add(frame.kind, frame.body)
	}
	var h *harness
	for _, m := range []*raftpb.Message{
		{Type: raftpb.MsgHeartbeat.Enum(), Term: new(uint64(9)), Commit: new(uint64(1))},
		{Type: raftpb.MsgApp.Enum(), Term: new(uint64(9)), Index: new(uint64(1)), LogTerm: new(uint64(1)), Entries: []*raftpb.Entry{{Index: new(uint64(2)), Term: new(uint64(9))}}},
		{Type: raftpb.MsgVote.Enum(), Term: new(uint64(9)), Index: new(uint64(5)), LogTerm: new(uint64(1))},
		{Type: raftpb.MsgAppResp.Enum(), Term: new(uint64(1)), Index: new(uint64(1 << 40))},
	} {
		m.From, m.To = new(newVoters(3)[1].Raft), new(newVoters(3)[0].Raft)
		body, err := proto.Marshal(m)
		require.NoError(f, err)
		f.Add(byte(frameRaft), body)
	}
	used := 0
	f.Fuzz(func(t *testing.T, kind byte, body []byte) {
		if used++; h == nil || used%100 == 0 {
			h = newHarness(t, 3)
			h.waitForLeader()
		}
		h.t = t
		defer func() {
			if r := recover(); r != nil {
				h = nil
				fault, ok := r.(Fault)
				require.True(t, ok && kind == frameRaft && !errors.As(fault.Err, new(runtime.Error)), "%v", r)
			}
		}()
		for _, p := range h.peers {
			for _, from := range []string{"p0", "p1", "p9"} {
				if from != p.self.ID {
					_ = p.core.Receive(from, p.core.encodeFrame(kind, body))
				}
			}
			p.core.TakeOutput()
		}
	})
}
