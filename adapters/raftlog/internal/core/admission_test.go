package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
)

// TestLearner_IsRemovedWhileDownAndReadmitted checks that the leader removes a learner whose process is down for
// long from the configuration, and admits the learner again when it returns.
func TestLearner_IsRemovedWhileDownAndReadmitted(t *testing.T) {
	h := newHarness(t, 3)
	p := h.addLearner(3)
	learners := func() int {
		if l := h.leader(); l != nil {
			return len(l.core.Membership().Learners)
		}
		return -1
	}
	h.advance(10 * election)
	require.Equal(t, 1, learners(), "the learner is active")
	p.down = true
	h.advance(absenceTimeouts * election / 2)
	require.Equal(t, 1, learners(), "the learner may return")
	h.waitFor("the learner is removed", func() bool { return learners() == 0 })
	require.Empty(t, h.leader().core.Membership().Removed)
	p.down = false
	h.waitFor("the learner is admitted again", func() bool { return learners() == 1 })
}

// TestAnnouncement_PassesOnKnownInstances checks that a peer learns from an announcement the data
// directories that the sender knows.
func TestAnnouncement_PassesOnKnownInstances(t *testing.T) {
	h, l := startCluster(t)
	other := h.otherPeers(l)[0]
	body := announcement{election: election, addr: other.self.Addr, instances: map[string]string{"z": "i"}}.encode()
	require.NoError(t, l.core.admission.receiveAnnouncement(l.core, other.self.ID, body))
	require.Equal(t, []map[string]string{{"z": "i"}}, l.core.output.Instances)
}

// TestAnnouncement_IsDecodedAsEncoded checks that decoding an encoded announcement, or an encoded
// reply, returns the original.
func TestAnnouncement_IsDecodedAsEncoded(t *testing.T) {
	instances := map[string]string{"a": "1", "b": ""}
	for _, want := range []announcement{{nonce: 7, addr: "h:1", election: time.Second, instances: instances}, {}} {
		got, err := decodeAnnouncement(want.encode())
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, want := range []welcome{{nonce: 7, term: 2, match: 9, instances: instances}, {}} {
		got, err := decodeWelcome(want.encode())
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := decodeWelcome([]byte{1, 2, 3, 200})
	require.ErrorIs(t, err, wire.ErrProtocol)
}

// TestWelcome_OnlyLeaderCanStopPeer checks that a peer stops when its leader reports that the peer has
// acknowledged an entry which its log lacks, and ignores the same report from a peer that it does not
// follow.
func TestWelcome_OnlyLeaderCanStopPeer(t *testing.T) {
	h, l := startCluster(t)
	h.advance(time.Second)
	p, other := h.otherPeers(l)[0], h.otherPeers(l)[1]
	w := welcome{nonce: p.core.admission.nonce, term: p.core.term, match: 1_000_000}.encode()
	for _, from := range []*peer{other, l} {
		require.NoError(t, p.core.Receive(from.self.ID, from.core.encodeFrame(frameWelcome, w)))
		out := p.core.TakeOutput()
		require.Equal(t, from == l, out.LostLog != nil)
	}
}
