package core

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"
)

// TestVoteHold_FormerLeaderStopsBeforeItVotes checks that a leader that receives a newer term does not vote
// before it has handled the loss of its role, because its candidates need time to stop.
func TestVoteHold_FormerLeaderStopsBeforeItVotes(t *testing.T) {
	h, l := startCluster(t)
	h.advance(2 * election)
	p := h.otherPeers(l)[0]
	term, last := l.core.term+1, l.core.last
	send := func(m *raftpb.Message) {
		m.From, m.To = new(p.core.self), new(l.core.self)
		body, err := marshal(m)
		require.NoError(t, err)
		require.NoError(t, l.core.Receive(p.self.ID, p.core.encodeFrame(frameRaft, body)))
	}
	send(&raftpb.Message{Type: raftpb.MsgAppResp.Enum(), Term: new(term), Index: new(uint64(1)), Reject: new(true)})
	send(&raftpb.Message{Type: raftpb.MsgVote.Enum(), Term: new(term + 1), Index: new(last.index), LogTerm: new(last.term)})
	l.handleOutput()
	require.NotEqual(t, Leader, l.core.Status().Role)
	require.Zero(t, l.log.HardState().GetVote(), "the former leader votes immediately")
	require.True(t, l.core.holdsVote())
}
