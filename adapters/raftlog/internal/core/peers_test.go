package core

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// TestSeedsAreAsked: a peer that was away for long may think that it is a member, of a
// configuration whose other members are gone; but for its seeds it would ask nobody else. Those
// that were removed have nothing to say.
func TestSeedsAreAsked(t *testing.T) {
	w := newWorld(t, 3)
	n := w.nodes[0]
	n.start(append(n.tablesVoters(), replica.Numbered("test", peerNo(8)), replica.Numbered("test", peerNo(9))))
	n.core.replica.Members.Removed = []string{peerNo(9).ID}
	require.Contains(t, n.core.Peers(), peerNo(8))
	require.NotContains(t, n.core.Peers(), peerNo(9))
	require.NotContains(t, n.core.Peers(), n.peer)
	require.Len(t, n.core.Peers(), 3, "each once")
}
