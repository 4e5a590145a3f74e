package core

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// TestSpace_LeaderRejectsUpdatesOnFullDisk checks that a leader rejects updates for which its disk has no space,
// and still accepts the entries that the cluster itself needs.
func TestSpace_LeaderRejectsUpdatesOnFullDisk(t *testing.T) {
	h, l := startCluster(t)
	ofSize := func(size int) Request { return Request{Kind: api.KindState, Data: make([]byte, size)} }
	known := ofSize(10)
	known.ID = api.RequestIDFrom(l.Wall(), 1, 1)
	require.NoError(t, h.request(l, known).Err)

	l.core.SetFreeSpace(10_000, false)
	require.NoError(t, h.request(l, ofSize(9_000)).Err)
	require.ErrorIs(t, h.request(l, ofSize(10_000)).Err, api.ErrNoSpace)
	h.setDisksStalled(true)
	l.core.SetFreeSpace(10_000, false)
	first := h.propose(l, ofSize(6_000)) // a stalled disk has not written this update yet
	require.ErrorIs(t, h.request(l, ofSize(6_000)).Err, api.ErrNoSpace)
	h.setDisksStalled(false)
	require.NoError(t, h.waitForReply(l, first).Err)
	require.Zero(t, l.core.space.unwritten)

	l.core.SetFreeSpace(-5, false)
	require.ErrorIs(t, h.request(l, ofSize(0)).Err, api.ErrNoSpace)
	require.NoError(t, h.request(l, known).Err, "the request changes nothing")
	require.NoError(t, h.request(l, Request{Kind: api.KindControl, Op: replica.Op{Do: replica.End, Election: "e"}}).Err)
	l.core.SetFreeSpace(math.MaxInt64, false)
	require.NoError(t, h.request(l, ofSize(10_000)).Err)
}

// TestSpace_LeaderRejectsRequestsIfMajorityIsFull checks that a leader rejects all requests while the disks of so
// many peers are full that nothing can be committed, and keeps the entries that it has written before.
func TestSpace_LeaderRejectsRequestsIfMajorityIsFull(t *testing.T) {
	h, l := startCluster(t)
	others := h.otherPeers(l)
	others[0].core.SetFreeSpace(0, true)
	h.advance(election)
	require.NoError(t, h.request(l, update("")).Err, "a majority has space")
	others[1].core.SetFreeSpace(0, true)
	h.advance(election)
	for _, r := range []Request{
		update(""),
		{Kind: api.KindControl, Op: replica.Op{Do: replica.End, Election: "e"}},
		changeTo(api.RequestID{}, 0, 1),
	} {
		err := h.request(l, r).Err
		require.ErrorIs(t, err, api.ErrNoSpace)
		require.ErrorContains(t, err, others[0].self.ID)
	}
	last := l.core.last.index
	others[1].core.SetFreeSpace(math.MaxInt64, false)
	h.advance(3 * election)
	require.NoError(t, h.request(l, update("")).Err)
	require.Greater(t, l.core.replica.Index, last)
	require.Less(t, others[0].core.replica.Index, last)
	l.core.SetFreeSpace(0, true)
	require.ErrorIs(t, h.request(l, update("")).Err, api.ErrNoSpace, "the leader and another peer are full")
	others[0].core.SetFreeSpace(math.MaxInt64, false)
	h.waitFor("the peer has caught up", func() bool { return others[0].core.replica.Index == l.core.replica.Index })
}

// TestTakeVotes_SendsVotesDespiteFullDisk checks that a peer votes while a Write with entries waits for disk
// space, and that it writes and sends only the vote and its hard state before the entries.
func TestTakeVotes_SendsVotesDespiteFullDisk(t *testing.T) {
	h, l := startCluster(t)
	p := h.otherPeers(l)[0]
	p.diskStalled = true
	require.NoError(t, h.request(l, update("")).Err)
	l.down = true
	failure := errors.New("no space")
	var sent []raftpb.MessageType
	written := &raftpb.HardState{}
	entries, examined := 0, 0
	h.waitFor("another peer is elected by the vote", func() bool {
		for ; examined < len(p.writes); examined++ {
			w := p.writes[examined]
			before := *w
			if w.HardState != nil {
				_, err := w.TakeVotes(func(*raftpb.HardState) error { return failure })
				require.ErrorIs(t, err, failure)
				require.Equal(t, before, *w)
			}
			votes, err := w.TakeVotes(func(hs *raftpb.HardState) error { written = hs; return nil })
			require.NoError(t, err)
			require.Nil(t, w.HardState)
			require.Equal(t, before.Entries, w.Entries)
			entries += len(w.Entries)
			for _, f := range w.Frames {
				require.Equal(t, raftpb.MsgAppResp, messageType(t, f))
			}
			require.Len(t, before.Frames, len(votes)+len(w.Frames))
			for _, f := range votes {
				sent = append(sent, messageType(t, f))
				h.inFlight = append(h.inFlight, transmission{h.now, p.self.ID, f.To, f.Data})
			}
		}
		return slices.ContainsFunc(h.otherPeers(l), func(p *peer) bool { return p.core.state == raft.StateLeader })
	})
	require.Positive(t, entries)
	require.Contains(t, sent, raftpb.MsgVoteResp)
	require.NotContains(t, sent, raftpb.MsgAppResp)
	require.Equal(t, p.core.term, written.GetTerm())
	require.NotZero(t, written.GetVote())
	require.Zero(t, written.GetCommit(), "entries that are not on the disk may be committed")
}

func messageType(t *testing.T, f Frame) raftpb.MessageType {
	m := &raftpb.Message{}
	require.NoError(t, proto.Unmarshal(f.Data[frameHeader:], m))
	return m.GetType()
}
