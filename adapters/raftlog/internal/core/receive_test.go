package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// TestReceiveRequest_LeadersOperations fails if a peer can request an operation that only a leader
// may propose, for example a window outside of which are all request IDs.
func TestReceiveRequest_LeadersOperations(t *testing.T) {
	h := newHarness(t, 3)
	l := h.waitForLeader()
	from := h.others(l)[0]
	for _, op := range []entry.Op{
		{Do: entry.Window, Window: 1 << 62}, {Do: entry.Transfer}, {Do: entry.Expire, Peer: from.core.self}, {Do: 0},
	} {
		require.ErrorIs(t, l.core.Receive(from.self.ID, from.requestFrame(1, op)), errFrame, op.Do)
	}
	h.advance(50 * time.Millisecond)
	require.Equal(t, 7*time.Hour, l.core.replica.Window)
	token := h.propose(l, update(""))
	h.advance(50 * time.Millisecond)
	require.NoError(t, l.replies[token].Err)
}

// FuzzReceive fails if a frame of this package, which may be malformed, makes a leader or a follower
// panic.
func FuzzReceive(f *testing.F) {
	id := requestid.From(time.Unix(1_700_000_000, 0), 1, 2)
	f.Add(byte(frameRequest), encodeRequest(1, Request{Kind: api.KindState, ID: id, Data: []byte("x")}))
	f.Add(byte(frameRequest), encodeRequest(1, Request{Kind: api.KindControl, ID: id, Op: entry.Op{Do: entry.Join, Election: "e", Candidate: "c"}}))
	f.Add(byte(frameRequest), encodeRequest(1, Request{Kind: api.KindConfig, ID: id, Voters: []api.Peer{{ID: "a", Addr: "b"}}}))
	f.Add(byte(frameReply), encodeReply(1, 2, &api.NotLeaderError{}))
	f.Add(byte(frameAnnounce), announcement{nonce: 1, addr: "x:1", election: 200 * time.Millisecond}.encode())
	f.Add(byte(frameWelcome), welcome{nonce: 1, match: 9}.encode())
	f.Add(byte(frameRemoved), wire.AppendMembership(nil, api.Membership{Removed: []string{"p0"}}))
	f.Fuzz(func(t *testing.T, kind byte, body []byte) {
		if kind == frameRaft {
			return // the engine decodes it
		}
		h := newHarness(t, 3)
		l := h.waitForLeader()
		for _, p := range h.peers {
			for _, from := range []string{"p0", "p1", "p9"} {
				if from != p.self.ID {
					_ = p.core.Receive(from, l.core.encodeFrame(kind, body))
				}
			}
			p.core.TakeOutput()
		}
	})
}
