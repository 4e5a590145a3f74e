package raftlog

import (
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/identity"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv/crashdisk"
)

// While the disk is full, only peers whose instance is on disk are accepted. When there is space
// again, the instances of the others are stored.
func TestAcceptHandshake_FullDisk(t *testing.T) {
	d := crashdisk.New(rand.New(rand.NewPCG(1, 1)))
	n := &Node{cfg: Config{ID: "a"}, fs: d, log: slog.New(slog.DiscardHandler), owner: identity.Owner{Founding: "f"}}
	require.NoError(t, n.readKnownPeers())
	connects := func(id string, start uint64) error {
		return n.acceptHandshake(link.Hello{Peer: true, Purpose: link.PurposeRaft, ID: id, Claim: link.Claim{Founding: "f", Instance: "of " + id, Start: start, Process: "p"}})
	}
	require.NoError(t, connects("b", 1))

	d.SetSpace(0)
	n.learnInstances([]map[string]string{{"c": "of c"}})
	for range 2 {
		require.Error(t, connects("c", 1), "it is learned, but not stored")
		require.Error(t, connects("d", 1), "it is not known")
	}
	require.NoError(t, connects("b", 2), "only its start is not stored")

	d.SetSpace(-1)
	require.NoError(t, connects("b", 2))
	stored, err := identity.ReadPeers(d)
	require.NoError(t, err)
	require.Equal(t, n.known.registry.Peers, stored)
	require.EqualValues(t, 2, stored["b"].Start)
	require.NoError(t, connects("c", 1))
	require.NoError(t, connects("d", 1))
	d.SetSpace(0)
	require.NoError(t, connects("c", 1), "nothing has changed")
}
