package core

import (
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// FuzzReceive: whatever comes in the frames that are not the engine's is refused, or taken,
// by a leader and by one that follows.
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
			return // the engine's, by its own decoder
		}
		w := newWorld(t, 3)
		w.until("a leader", func() bool { return w.leader() != nil })
		l := w.leader()
		for _, n := range w.nodes {
			for _, from := range []string{"p0", "p1", "p9"} {
				if from != n.peer.ID {
					_ = n.core.Receive(from, l.core.encodeFrame(kind, body))
				}
			}
			n.core.TakeOutput()
		}
	})
}
