package raftlog_test

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

func (h *harness) recoverOffline(t testing.TB, p api.Peer, dry bool) raftlog.Recovery {
	t.Helper()
	r, err := raftlog.RecoverOffline(raftlog.RecoverConfig{Dir: p.ID, DryRun: dry}.OnDisk(h.disks[p.ID]))
	require.NoError(t, err)
	return r
}

// TestRecoverOffline_KeepsEntries checks that a recovered peer keeps every entry that it has, that the cluster
// rejects the other former peers when they return, and that new peers can join.
func TestRecoverOffline_KeepsEntries(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		a, b, c := h.peers[0], h.peers[1], h.peers[2]
		h.proposeAll(t, a, numberedUpdates("x", 5)...)
		h.requireUpdates(t, h.peers, numberedUpdates("x", 5)...)
		before := h.nodeOf(a).Info()
		_, err := raftlog.RecoverOffline(raftlog.RecoverConfig{Dir: "a"}.OnDisk(h.disks[a.ID]))
		require.ErrorIs(t, err, api.ErrInvalid, "the peer is running")
		require.NoError(t, h.stopPeer(a))
		h.proposeAll(t, b, "lost")
		h.stopAll()

		dry := h.recoverOffline(t, a, true)
		require.Equal(t, dry, h.recoverOffline(t, a, true), "a dry run changes nothing")
		require.Equal(t, a, dry.Peer)
		require.Equal(t, "test", dry.Cluster)
		require.Equal(t, []string{b.ID, c.ID}, dry.Removed)
		require.GreaterOrEqual(t, dry.Last, before.LastIndex)
		require.LessOrEqual(t, dry.Committed, dry.Last)
		require.Equal(t, dry, h.recoverOffline(t, a, false))

		h.startPeer(a)
		h.proposeAll(t, a, "alone")
		h.requireUpdates(t, []api.Peer{a}, append(numberedUpdates("x", 5), "alone")...)
		m := membershipOf(t, h.nodeOf(a))
		require.Equal(t, []api.Peer{a}, m.Voters)
		require.ElementsMatch(t, []string{b.ID, c.ID}, m.Removed)
		// The other peers of the former cluster start again.
		for _, p := range []api.Peer{b, c} {
			h.startPeer(p)
			time.Sleep(time.Minute)
			require.NoError(t, h.nodeOf(p).Err(), "the recovered peer alone must not stop another peer")
			require.Equal(t, "candidate", h.nodeOf(p).Info().Role)
			require.Contains(t, h.logOf(p), "recovered without this peer")
			require.NoError(t, h.stopPeer(p))
		}
		// New peers join, even from a snapshot that was made before the recovery.
		d, e := peerInfo(3), peerInfo(4)
		joins := withInitialVoters(a)
		h.startPeer(d, joins)
		h.startPeer(e, joins)
		h.changeVoters(t, a, a, d, e)
		h.proposeAll(t, d, "three")
		h.requireUpdates(t, []api.Peer{a, d, e}, append(numberedUpdates("x", 5), "alone", "three")...)
		for _, p := range []api.Peer{a, d, e} {
			require.NoError(t, h.stopPeer(p))
		}
		for _, p := range []api.Peer{d, e} {
			h.startPeer(p, joins)
		}
		h.proposeAll(t, e, "restarted")
	})
}

// TestRecoverOffline_RecoversLearnerDuringChange checks that RecoverOffline recovers a learner whose cluster
// has stopped in the middle of a change of the voters, also when it is called twice.
func TestRecoverOffline_RecoversLearnerDuringChange(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		d := peerInfo(3)
		h.startPeer(d)
		waitFor(t, "the peer is a learner", func() bool { return len(membershipOf(t, h.nodeOf(h.peers[0])).Learners) == 1 })
		h.proposeAll(t, d, "x")
		// Stop two of the three voters, so that the change remains incomplete.
		for _, p := range h.otherPeers(h.waitForLeader(t)) {
			_ = h.stopPeer(p)
		}
		go func() {
			_, _ = h.nodeOf(d).ChangePeers(t.Context(), api.NewRequestID(), []api.Peer{h.peers[0], d})
		}()
		time.Sleep(time.Second)
		for _, n := range h.runningNodes() {
			_ = n.Close()
		}
		for range 2 {
			h.recoverOffline(t, d, false)
		}
		h.startPeer(d)
		h.proposeAll(t, d, "y")
		h.requireUpdates(t, []api.Peer{d}, "x", "y")
		require.Equal(t, []api.Peer{d}, membershipOf(t, h.nodeOf(d)).Voters)
	})
}

// TestRestoreOffline_StartsNewCluster checks that a new cluster continues from an exported snapshot, with
// greater indexes, and that RestoreOffline rejects an IndexGap with which later indexes would overflow.
func TestRestoreOffline_StartsNewCluster(t *testing.T) {
	dir := t.TempDir()
	open := func(name string) *raftlog.Node {
		n, err := raftlog.Open(raftlog.Config{
			Cluster: "test", ID: name, Addr: "127.0.0.1:1", Listen: "127.0.0.1:0", Peers: []api.Peer{{ID: name, Addr: "127.0.0.1:1"}},
			Dir: filepath.Join(dir, name), Insecure: true, ElectionTimeout: 200 * time.Millisecond,
		})
		require.NoError(t, err)
		t.Cleanup(func() { n.Close() })
		return n
	}
	n := open("a")
	id := api.NewRequestID()
	index, err := n.Propose(contextWithin(t, time.Minute), id, []byte("x"))
	require.NoError(t, err)
	_, err = n.Compact(contextWithin(t, time.Minute))
	require.NoError(t, err)
	target := filepath.Join(dir, "exported")
	made, err := raftlog.ExportOffline(filepath.Join(dir, "a"), target)
	require.NoError(t, err)
	require.GreaterOrEqual(t, made.Index, index)
	_, err = raftlog.ExportOffline(filepath.Join(dir, "a"), target)
	require.ErrorIs(t, err, api.ErrInvalid, "the file exists")
	_, err = n.Propose(contextWithin(t, time.Minute), api.NewRequestID(), []byte("lost"))
	require.NoError(t, err)

	cfg := raftlog.RestoreConfig{Snapshot: target, Dir: filepath.Join(dir, "b"), Peer: api.Peer{ID: "b", Addr: "127.0.0.1:1"}}
	for _, gap := range []uint64{math.MaxUint64, math.MaxUint64 - made.Index, 1 << 63, 1<<62 + 1, 1<<62 - made.Index + 1} {
		tooLarge := cfg
		tooLarge.IndexGap = gap
		_, err = raftlog.RestoreOffline(tooLarge)
		require.ErrorIs(t, err, api.ErrInvalid, gap)
		require.NoDirExists(t, cfg.Dir)
	}
	greatest := cfg
	greatest.Dir, greatest.Peer.ID, greatest.IndexGap = filepath.Join(dir, "greatest"), "greatest", 1<<62-made.Index
	restored, err := raftlog.RestoreOffline(greatest)
	require.NoError(t, err)
	require.EqualValues(t, uint64(1<<62), restored.Index)
	_, err = open("greatest").Propose(contextWithin(t, time.Minute), api.NewRequestID(), []byte("y"))
	require.NoError(t, err)
	restored, err = raftlog.RestoreOffline(cfg)
	require.NoError(t, err)
	require.Equal(t, made.Index+raftlog.DefaultIndexGap, restored.Index)
	_, err = raftlog.RestoreOffline(cfg)
	require.ErrorIs(t, err, api.ErrInvalid, "the directory is not empty")
	m := open("b")
	again, err := m.Propose(contextWithin(t, time.Minute), id, []byte("x"))
	require.NoError(t, err)
	require.Equal(t, index, again, "the request ID is known")
	next, err := m.Propose(contextWithin(t, time.Minute), api.NewRequestID(), []byte("y"))
	require.NoError(t, err)
	require.Greater(t, next, restored.Index)

	text, err := os.ReadFile(target)
	require.NoError(t, err)
	text[len(text)/2] ^= 1
	require.NoError(t, os.WriteFile(target, text, 0o600))
	cfg.Dir = filepath.Join(dir, "c")
	_, err = raftlog.RestoreOffline(cfg)
	require.ErrorIs(t, err, api.ErrFault)
}
