package core

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"
)

// TestVoteOfWhoHasJustLed: a leader that hears of a newer term, and is asked for its vote before
// anything else has followed from that, does not give it: its candidates need time to stop.
func TestVoteOfWhoHasJustLed(t *testing.T) {
	w := newWorld(t, 3)
	w.until("a leader", func() bool { return w.leader() != nil })
	l := w.leader()
	w.run(2 * election)
	n := w.other(l)
	term, last := l.core.term+1, l.core.last
	send := func(m *raftpb.Message) {
		m.From, m.To = new(n.core.self), new(l.core.self)
		body, err := marshal(m)
		require.NoError(t, err)
		require.NoError(t, l.core.Receive(n.peer.ID, n.core.encodeFrame(frameRaft, body)))
	}
	send(&raftpb.Message{Type: raftpb.MsgAppResp.Enum(), Term: new(term), Index: new(uint64(1)), Reject: new(true)})
	send(&raftpb.Message{Type: raftpb.MsgVote.Enum(), Term: new(term + 1), Index: new(last.index), LogTerm: new(last.term)})
	l.drain()
	require.NotEqual(t, Leader, l.core.Status().Role)
	require.Zero(t, l.log.HardState().GetVote(), "it votes at once")
	require.True(t, l.core.holdsVote())
}
