package raftlog_test

import (
	"slices"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
)

// A peer whose machine has moved is started with its new address, which the others learn from the
// log; they then reach it there.
func TestPeerMoves(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		a, b, c := w.peers[0], w.peers[1], w.peers[2]
		w.propose(t, a, few("x", 20)...)
		moved := api.Peer{ID: b.ID, Addr: "host9:1"}
		require.NoError(t, w.stop(b))
		own := func(cfg *raftlog.Config) { cfg.Peers = []api.Peer{a, moved, c} }
		w.start(moved, own)
		await(t, "all know the new address", func() bool {
			return !slices.ContainsFunc(w.all(), func(n *raftlog.Node) bool {
				return !slices.Contains(members(t, n).Voters, moved)
			})
		})
		require.Empty(t, members(t, w.node(a)).Removed)
		// The others dial it: it is reached though it dials nobody.
		require.NoError(t, w.stop(c))
		w.propose(t, a, "a and b")
		w.start(c)
		require.NoError(t, w.stop(a))
		w.propose(t, c, "b and c")
		w.has(t, []api.Peer{moved, c}, append(few("x", 20), "a and b", "b and c")...)
		// A snapshot reaches it there, too.
		w.start(a)
		w.leader(t)
		require.NoError(t, w.stop(moved))
		w.propose(t, a, few("y", 20)...)
		time.Sleep(2 * time.Minute)
		for _, p := range []api.Peer{a, c} {
			_, err := w.node(p).Compact(within(t, time.Minute))
			require.NoError(t, err)
		}
		w.start(moved, own)
		w.propose(t, a, "end")
		w.has(t, []api.Peer{moved}, slices.Concat(few("x", 20), []string{"a and b", "b and c"}, few("y", 20), []string{"end"})...)
	}, minute)
}
