package raftlog

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/identity"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/transport"
)

// TestAcceptHandshake_RejectsNewPeerWhileDiskIsFull checks that acceptHandshake rejects a peer while it
// cannot store the identity of that peer's directory, the instance, because the disk is full. The instances
// are written when there is space again.
func TestAcceptHandshake_RejectsNewPeerWhileDiskIsFull(t *testing.T) {
	d := testenv.NewDisk(1)
	n := &Node{cfg: Config{ID: "a"}, fs: d, log: slog.New(slog.DiscardHandler), owner: identity.Owner{Founding: "f"}}
	n.memberStatus.Store(&memberStatus{members: []api.Peer{{ID: "b"}, {ID: "c"}, {ID: "d"}}})
	require.NoError(t, n.readKnownPeers())
	connects := func(id string, start uint64) error {
		return n.acceptHandshake(link.Hello{Peer: true, Purpose: link.PurposeRaft, ID: id, Claim: link.Claim{Founding: "f", Instance: "of " + id, Start: start, Process: "p"}})
	}
	require.NoError(t, connects("b", 1))

	d.SetSpace(0)
	n.learnInstances([]map[string]string{{"c": "of c"}})
	for range 2 {
		require.Error(t, connects("c", 1), "the instance of c is learned, but not stored")
		require.Error(t, connects("d", 1), "the instance of d is unknown")
	}
	require.NoError(t, connects("b", 2), "only the start counter of b is not stored")

	d.SetSpace(-1)
	require.NoError(t, connects("b", 2))
	stored, err := identity.ReadPeers(d)
	require.NoError(t, err)
	require.Equal(t, n.known.registry.Peers, stored)
	require.EqualValues(t, 2, stored["b"].Start)
	require.NoError(t, connects("c", 1))
	require.NoError(t, connects("d", 1))
	d.SetSpace(0)
	require.NoError(t, connects("c", 1), "nothing must be written for the same claim")
}

// TestAcceptHandshake_RecordsOnlyMembers checks that acceptHandshake records the claim of a process only if the
// process is a member and its connection carries the Raft protocol. Claims that a process made before its ID
// became a member must not be recorded later, because another process may use the ID by then.
func TestAcceptHandshake_RecordsOnlyMembers(t *testing.T) {
	d := testenv.NewDisk(1)
	n := &Node{cfg: Config{ID: "a"}, fs: d, log: slog.New(slog.DiscardHandler), owner: identity.Owner{Founding: "f"}}
	members := func(ids ...string) {
		var s memberStatus
		for _, id := range ids {
			s.members = append(s.members, api.Peer{ID: id})
		}
		n.memberStatus.Store(&s)
		n.net.CheckPeers()
	}
	n.net = transport.New(transport.Config{Accepts: n.acceptHandshake})
	members("b", "d")
	require.NoError(t, n.readKnownPeers())
	connectsFrom := func(id, dir string, purpose link.Purpose, start uint64) error {
		return n.acceptHandshake(link.Hello{Peer: true, Purpose: purpose, ID: id, Claim: link.Claim{Founding: "f", Instance: dir, Start: start, Process: "p"}})
	}
	connects := func(id string, purpose link.Purpose, start uint64) error {
		return connectsFrom(id, "of "+id, purpose, start)
	}
	stored := func() map[string]identity.Known {
		peers, err := identity.ReadPeers(d)
		require.NoError(t, err)
		require.Equal(t, n.known.registry.Peers, peers)
		return peers
	}
	require.NoError(t, connects("b", link.PurposeRaft, 1))
	for _, purpose := range []link.Purpose{link.PurposeSnapshot, link.PurposeClient, link.PurposeStream} {
		require.NoError(t, connects("b", purpose, 1_000_000))
		require.NoError(t, connects("d", purpose, 1_000_000))
	}
	require.NoError(t, connectsFrom("c", "replaced", link.PurposeRaft, 7))
	n.learnInstances([]map[string]string{{"c": "forged"}})
	require.Equal(t, map[string]identity.Known{"b": {Instance: "of b", Start: 1, Process: "p"}}, stored())

	members("b", "c", "d")
	require.NoError(t, connects("c", link.PurposeRaft, 1))
	require.Equal(t, map[string]identity.Known{"b": {Instance: "of b", Start: 1, Process: "p"}, "c": {Instance: "of c", Start: 1, Process: "p"}}, stored())
	require.Error(t, connectsFrom("c", "replaced", link.PurposeRaft, 8))
}
