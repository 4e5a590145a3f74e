package raftlog_test

// What is left of a cluster that has lost a majority of its peers.

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

func (w *world) recover(t testing.TB, p api.Peer, dry bool) raftlog.Recovery {
	t.Helper()
	r, err := raftlog.RecoverOffline(raftlog.RecoverConfig{Dir: p.ID, DryRun: dry}.OnDisk(w.disks[p.ID]))
	require.NoError(t, err)
	return r
}

// The peer that is left becomes the cluster. What it has is kept, whether it knew that it was
// committed or not; the others are refused, and new peers join.
func TestRecover(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		a, b, c := w.peers[0], w.peers[1], w.peers[2]
		w.propose(t, a, few("x", 5)...)
		w.has(t, w.peers, few("x", 5)...)
		before := w.node(a).Info()
		_, err := raftlog.RecoverOffline(raftlog.RecoverConfig{Dir: "a"}.OnDisk(w.disks[a.ID]))
		require.ErrorIs(t, err, api.ErrInvalid, "it runs")
		require.NoError(t, w.stop(a))
		w.propose(t, b, "lost")
		w.stopAll()

		dry := w.recover(t, a, true)
		require.Equal(t, dry, w.recover(t, a, true), "nothing was changed")
		require.Equal(t, a, dry.Peer)
		require.Equal(t, "test", dry.Cluster)
		require.Equal(t, []string{b.ID, c.ID}, dry.Removed)
		require.GreaterOrEqual(t, dry.Last, before.LastIndex)
		require.LessOrEqual(t, dry.Committed, dry.Last)
		require.Equal(t, dry, w.recover(t, a, false))

		w.start(a)
		w.propose(t, a, "alone")
		w.has(t, []api.Peer{a}, append(few("x", 5), "alone")...)
		m := members(t, w.node(a))
		require.Equal(t, []api.Peer{a}, m.Voters)
		require.ElementsMatch(t, []string{b.ID, c.ID}, m.Removed)
		// The others come back.
		w.mistaken(t, b, "recovered without this peer")
		w.mistaken(t, c, "recovered without this peer")
		// New peers join, also from the snapshot of before.
		d, e := peer(3), peer(4)
		joins := func(c *raftlog.Config) { c.Peers = []api.Peer{a} }
		w.start(d, joins)
		w.start(e, joins)
		w.change(t, a, a, d, e)
		w.propose(t, d, "three")
		w.has(t, []api.Peer{a, d, e}, append(few("x", 5), "alone", "three")...)
		for _, p := range []api.Peer{a, d, e} {
			require.NoError(t, w.stop(p))
		}
		for _, p := range []api.Peer{d, e} {
			w.start(p, joins)
		}
		w.propose(t, e, "restarted")
	})
}

// A peer without a vote, and one in the middle of a change of the peers, can be recovered too, and
// more than once.
func TestRecoverAnyPeer(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		d := peer(3)
		w.start(d)
		await(t, "it is admitted", func() bool { return len(members(t, w.node(w.peers[0])).Learners) == 1 })
		w.propose(t, d, "x")
		// The new voters cannot commit: the change stays in the middle.
		for _, p := range w.others(w.leader(t)) {
			_ = w.stop(p)
		}
		go func() {
			_, _ = w.node(d).ChangePeers(t.Context(), requestid.New(), []api.Peer{w.peers[0], d})
		}()
		time.Sleep(time.Second)
		for _, n := range w.all() {
			_ = n.Close()
		}
		for range 2 {
			w.recover(t, d, false)
		}
		w.start(d)
		w.propose(t, d, "y")
		w.has(t, []api.Peer{d}, "x", "y")
		require.Equal(t, []api.Peer{d}, members(t, w.node(d)).Voters)
	})
}

// A snapshot begins a new cluster, whose indexes are above those of the old one.
func TestExportAndRestore(t *testing.T) {
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
	id := requestid.New()
	index, err := n.Propose(within(t, time.Minute), id, []byte("x"))
	require.NoError(t, err)
	_, err = n.Compact(within(t, time.Minute))
	require.NoError(t, err)
	target := filepath.Join(dir, "exported")
	made, err := raftlog.ExportOffline(filepath.Join(dir, "a"), target)
	require.NoError(t, err)
	require.GreaterOrEqual(t, made.Index, index)
	_, err = raftlog.ExportOffline(filepath.Join(dir, "a"), target)
	require.ErrorIs(t, err, api.ErrInvalid, "it exists")
	_, err = n.Propose(within(t, time.Minute), requestid.New(), []byte("lost"))
	require.NoError(t, err)

	cfg := raftlog.RestoreConfig{Snapshot: target, Dir: filepath.Join(dir, "b"), Peer: api.Peer{ID: "b", Addr: "127.0.0.1:1"}}
	restored, err := raftlog.RestoreOffline(cfg)
	require.NoError(t, err)
	require.Equal(t, made.Index+raftlog.DefaultIndexGap, restored.Index)
	_, err = raftlog.RestoreOffline(cfg)
	require.ErrorIs(t, err, api.ErrInvalid, "it is not empty")
	m := open("b")
	again, err := m.Propose(within(t, time.Minute), id, []byte("x"))
	require.NoError(t, err)
	require.Equal(t, index, again, "the ID is remembered")
	next, err := m.Propose(within(t, time.Minute), requestid.New(), []byte("y"))
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
