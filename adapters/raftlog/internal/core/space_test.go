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
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

func (w *world) answer(n *node, r Request) error {
	w.t.Helper()
	token := w.propose(n, r)
	w.until("a reply", func() bool { _, ok := n.replies[token]; return ok })
	return n.replies[token].Err
}

// TestRoomForUpdates: a leader rejects updates for which its disk has no room, and not what the
// cluster itself needs.
func TestRoomForUpdates(t *testing.T) {
	w := newWorld(t, 3)
	w.until("a leader", func() bool { return w.leader() != nil })
	l := w.leader()
	update := func(size int) Request { return Request{Kind: api.KindState, Data: make([]byte, size)} }
	known := update(10)
	known.ID = requestid.From(l.Wall(), 1, 1)
	require.NoError(t, w.answer(l, known))

	l.core.SetFreeSpace(10_000, false)
	require.NoError(t, w.answer(l, update(9_000)))
	require.ErrorIs(t, w.answer(l, update(10_000)), api.ErrNoSpace)
	for _, n := range w.nodes {
		n.stalled = true
	}
	l.core.SetFreeSpace(10_000, false)
	first := w.propose(l, update(6_000)) // it is not on the disk yet
	require.ErrorIs(t, w.answer(l, update(6_000)), api.ErrNoSpace)
	for _, n := range w.nodes {
		n.stalled = false
	}
	w.until("a reply", func() bool { _, ok := l.replies[first]; return ok })
	require.NoError(t, l.replies[first].Err)
	require.Zero(t, l.core.space.unwritten)

	l.core.SetFreeSpace(-5, false)
	require.ErrorIs(t, w.answer(l, update(0)), api.ErrNoSpace)
	require.NoError(t, w.answer(l, known), "it changes nothing")
	require.NoError(t, w.answer(l, Request{Kind: api.KindControl, Op: entry.Op{Do: entry.End, Election: "e"}}))
	l.core.SetFreeSpace(math.MaxInt64, false)
	require.NoError(t, w.answer(l, update(10_000)))
}

// TestMajorityWithoutSpace: the leader rejects everything while nothing can be committed.
func TestMajorityWithoutSpace(t *testing.T) {
	w := newWorld(t, 3)
	w.until("a leader", func() bool { return w.leader() != nil })
	l := w.leader()
	var others []*node
	for _, n := range w.nodes {
		if n != l {
			others = append(others, n)
		}
	}
	others[0].core.SetFreeSpace(0, true)
	w.run(election)
	require.NoError(t, w.answer(l, Request{Kind: api.KindState}), "a majority has space")
	others[1].core.SetFreeSpace(0, true)
	w.run(election)
	to := []api.Peer{peerNo(0), peerNo(1)}
	for _, r := range []Request{
		{Kind: api.KindState},
		{Kind: api.KindControl, Op: entry.Op{Do: entry.End, Election: "e"}},
		{Kind: api.KindConfig, ID: requestid.From(l.Wall(), 1, 1), Voters: to},
	} {
		err := w.answer(l, r)
		require.ErrorIs(t, err, api.ErrNoSpace)
		require.ErrorContains(t, err, others[0].peer.ID)
	}
	// What was written before is not lost.
	has := l.core.last.index
	others[1].core.SetFreeSpace(math.MaxInt64, false)
	w.run(3 * election)
	require.NoError(t, w.answer(l, Request{Kind: api.KindState}))
	require.Greater(t, l.core.replica.Index, has)
	require.Less(t, others[0].core.replica.Index, has)
	l.core.SetFreeSpace(0, true)
	require.ErrorIs(t, w.answer(l, Request{Kind: api.KindState}), api.ErrNoSpace, "the leader and another one")
	others[0].core.SetFreeSpace(math.MaxInt64, false)
	w.until("it catches up", func() bool { return others[0].core.replica.Index == l.core.replica.Index })
}

// TestVoteAheadOfEntries: of a work that waits for space only what says how the peer has voted is
// taken.
func TestVoteAheadOfEntries(t *testing.T) {
	w := newWorld(t, 3)
	w.until("a leader", func() bool { return w.leader() != nil })
	l := w.leader()
	n := w.other(l)
	n.stalled = true
	require.NoError(t, w.answer(l, Request{Kind: api.KindState}))
	l.down = true
	refused := errors.New("no space")
	var said []raftpb.MessageType
	promised := &raftpb.HardState{}
	entries, looked := 0, 0
	w.until("another one leads, by its vote", func() bool {
		for ; looked < len(n.work); looked++ {
			work := n.work[looked]
			before := *work
			if work.HardState != nil {
				_, err := work.TakeVotes(func(*raftpb.HardState) error { return refused })
				require.ErrorIs(t, err, refused)
				require.Equal(t, before, *work)
			}
			votes, err := work.TakeVotes(func(hs *raftpb.HardState) error { promised = hs; return nil })
			require.NoError(t, err)
			require.Nil(t, work.HardState)
			require.Equal(t, before.Entries, work.Entries)
			entries += len(work.Entries)
			for _, s := range work.Frames {
				require.Equal(t, raftpb.MsgAppResp, kindOf(t, s))
			}
			require.Len(t, before.Frames, len(votes)+len(work.Frames))
			for _, s := range votes {
				said = append(said, kindOf(t, s))
				w.wire = append(w.wire, wired{w.now, n.peer.ID, s.To, s.Data})
			}
		}
		return slices.ContainsFunc(w.nodes, func(n *node) bool { return n != l && n.core.state == raft.StateLeader })
	})
	require.Positive(t, entries)
	require.Contains(t, said, raftpb.MsgVoteResp)
	require.NotContains(t, said, raftpb.MsgAppResp)
	require.Equal(t, n.core.term, promised.GetTerm())
	require.NotZero(t, promised.GetVote())
	require.Zero(t, promised.GetCommit(), "entries that are not on the disk may be committed")
}

func kindOf(t *testing.T, s Frame) raftpb.MessageType {
	m := &raftpb.Message{}
	require.NoError(t, proto.Unmarshal(s.Data[frameHeader:], m))
	return m.GetType()
}
