package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// countAppends counts the append messages that the leader sends from now on, separately with and
// without entries.
func (h *harness) countAppends(l *peer) (with, without *int) {
	with, without = new(int), new(int)
	h.drops = func(m transmission) bool {
		var decoded raftpb.Message
		if m.from == l.self.ID && m.frame[0] == frameRaft && proto.Unmarshal(m.frame[frameHeader:], &decoded) == nil &&
			decoded.GetType() == raftpb.MsgApp {
			if len(decoded.GetEntries()) > 0 {
				*with++
			} else {
				*without++
			}
		}
		return false
	}
	return with, without
}

// TestNotices_SendOneMessagePerPeerAndUpdate checks that the leader sends only one message to each peer for each
// update if a client makes one update after another, and that the other peers apply the last update soon.
func TestNotices_SendOneMessagePerPeerAndUpdate(t *testing.T) {
	h, l := startCluster(t)
	h.advance(time.Second)
	with, without := h.countAppends(l)
	const updates = 20
	for range updates {
		require.NoError(t, h.request(l, update("x")).Err)
	}
	require.Equal(t, updates*len(h.otherPeers(l)), *with)
	require.Less(t, *without, updates/2, "the replies to heartbeats cause some")
	index := l.core.Status().Applied
	h.advance(noticeDelay + 2*time.Millisecond)
	for _, p := range h.otherPeers(l) {
		require.Equal(t, index, p.core.Status().Applied)
	}
}

// TestNotices_AreNotDelayedIfCallerWaits checks that the leader immediately sends the message that an entry is
// committed to a peer whose callers or candidates wait for the entry.
func TestNotices_AreNotDelayedIfCallerWaits(t *testing.T) {
	h, l := startCluster(t)
	h.advance(time.Second)
	p := h.otherPeers(l)[0]
	// A forwarded request takes four messages: to the leader, to the voters, back to the leader, and
	// the reply.
	forwarded := update("x")
	forwarded.Forward = true
	start := h.now
	token := h.propose(p, forwarded)
	h.waitForReply(p, token)
	require.LessOrEqual(t, h.now-start, 5*time.Millisecond)

	l.core.AddCandidate("e", "c", "")
	l.handleOutput()
	took := h.waitFor("the candidate is known", func() bool { return len(p.core.replica.Elections.Get("e").Candidates) == 1 })
	require.LessOrEqual(t, took, 4*time.Millisecond)
}
