package raftlog_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/offline"
)

// configOnFiles returns the configuration of a cluster of one peer, whose data is in the directory dir of the
// operating system.
func configOnFiles(dir string, machine raftlog.StateMachine) raftlog.Config {
	return raftlog.Config{
		Cluster: "test", ID: "one", Addr: "one:1", Listen: "127.0.0.1:0", Peers: []api.Peer{{ID: "one", Addr: "one:1"}},
		Dir: dir, Insecure: true, StateMachine: machine, ElectionTimeout: 100 * time.Millisecond,
		CompactFile: filepath.Join(dir, "compact", "snap.new"),
	}
}

// openOnFiles opens the peer of configOnFiles, in real time, and closes it at the end of the test.
func openOnFiles(t *testing.T, dir string, machine raftlog.StateMachine) *raftlog.Node {
	t.Helper()
	n, err := raftlog.Open(configOnFiles(dir, machine))
	require.NoError(t, err)
	t.Cleanup(func() { n.Close() })
	return n
}

// TestCompactOffline_PeerInstallsSnapshot checks that a running peer installs an offline snapshot, and that
// the snapshot contains all updates and request IDs.
func TestCompactOffline_PeerInstallsSnapshot(t *testing.T) {
	dir := t.TempDir()
	machine := &recorder{}
	n := openOnFiles(t, dir, machine)
	ctx := contextWithin(t, 5*time.Minute)
	var last uint64
	id := api.NewRequestID()
	for i := range 5 {
		index, err := n.Propose(ctx, api.NewRequestID(), fmt.Appendf(nil, "%d %s", i, strings.Repeat("x", 100_000)))
		require.NoError(t, err)
		last = index
	}
	index, err := n.Propose(ctx, id, []byte("the last"))
	require.NoError(t, err)
	require.Equal(t, last+1, index)
	want := machine.recordedUpdates()
	require.Len(t, want, 6)
	_, err = n.Propose(ctx, api.NewRequestID(), []byte("not in it"))
	require.NoError(t, err)

	target := filepath.Join(dir, "compact", "snap.new")
	applied := n.Info().CommitIndex
	made, err := raftlog.CompactOffline(ctx, raftlog.OfflineConfig{Dir: dir, Index: index, Target: target, StateMachine: &recorder{}, Committed: applied})
	require.NoError(t, err)
	require.Equal(t, index, made.Index)
	require.Less(t, made.Through, index, "the request IDs have not expired")
	require.Eventually(t, func() bool { return n.Info().SnapshotIndex == index }, time.Minute, 20*time.Millisecond)
	require.Equal(t, made.Size, n.Info().SnapshotSize)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		left, err := os.ReadDir(filepath.Dir(target))
		require.NoError(c, err)
		require.Empty(c, left, "files remain in the directory of the target")
	}, time.Minute, 20*time.Millisecond)

	s, err := offline.ReadSnapshot(filepath.Join(dir, offline.SnapshotName))
	require.NoError(t, err)
	require.Equal(t, index, s.Index)
	require.Equal(t, "test", s.Cluster)
	require.Equal(t, 6, s.RequestIDs)
	require.Equal(t, []api.Peer{{ID: "one", Addr: "one:1"}}, s.Membership.Voters)
	o, err := offline.ReadOwner(dir)
	require.NoError(t, err)
	require.Equal(t, offline.Owner{Cluster: "test", Peer: "one"}, o)
	names, err := offline.Snapshots(dir)
	require.NoError(t, err)
	require.Len(t, names, 2, "the previous snapshot is kept")

	require.NoError(t, n.Close())
	restored := &recorder{}
	n = openOnFiles(t, dir, restored)
	require.Eventually(t, func() bool { return len(restored.recordedUpdates()) == 7 }, time.Minute, 20*time.Millisecond)
	require.Equal(t, append(want, "not in it"), restored.recordedUpdates())
	again, err := n.Propose(ctx, id, []byte("the last"))
	require.NoError(t, err)
	require.Equal(t, index, again, "the snapshot includes the request ID")
	_, err = raftlog.Open(configOnFiles(dir, &recorder{}))
	require.ErrorIs(t, err, api.ErrInUse, "the directory is in use")
	require.Len(t, restored.recordedUpdates(), 7)
	require.NoError(t, n.Close())

	// Create a second snapshot from the first snapshot while the peer does not run.
	made, err = raftlog.CompactOffline(ctx, raftlog.OfflineConfig{Dir: dir, Index: index + 1, Target: target, StateMachine: &recorder{}, Committed: applied})
	require.NoError(t, err)
	n = openOnFiles(t, dir, &recorder{})
	require.Eventually(t, func() bool { return n.Info().SnapshotIndex == made.Index }, time.Minute, 20*time.Millisecond)
}

// TestCompactOffline_RejectsInvalidRequests checks that CompactOffline rejects an index that the snapshot
// already contains or that is not committed, a state machine that is ahead of the index or missing, an existing
// target and a damaged snapshot, and that it does not change the files of the peer.
func TestCompactOffline_RejectsInvalidRequests(t *testing.T) {
	dir := t.TempDir()
	n := openOnFiles(t, dir, &recorder{})
	ctx := contextWithin(t, 5*time.Minute)
	for range 3 {
		_, err := n.Propose(ctx, api.NewRequestID(), []byte("update"))
		require.NoError(t, err)
	}
	index, err := n.Compact(ctx)
	require.NoError(t, err)
	applied, err := n.Propose(ctx, api.NewRequestID(), []byte("update"))
	require.NoError(t, err)
	target := filepath.Join(t.TempDir(), "new")
	_, err = raftlog.CompactOffline(ctx, raftlog.OfflineConfig{Dir: dir, Index: applied, Target: target, StateMachine: &recorder{}})
	require.ErrorIs(t, err, api.ErrInvalid)
	require.ErrorContains(t, err, "not known to be committed")
	require.NoError(t, n.Close())
	before := listDirectory(t, dir)

	for says, cfg := range map[string]raftlog.OfflineConfig{
		"already":           {Index: index, StateMachine: &recorder{}},
		"state machine":     {Index: index + 1},
		"has applied entry": {Index: index + 1, StateMachine: &aheadMachine{}},
	} {
		cfg.Dir, cfg.Target, cfg.Committed = dir, target, applied
		_, err = raftlog.CompactOffline(ctx, cfg)
		require.ErrorIs(t, err, api.ErrInvalid)
		require.ErrorContains(t, err, says)
	}
	require.NoFileExists(t, target)
	require.NoError(t, os.WriteFile(target, []byte("mine"), 0o600))
	_, err = raftlog.CompactOffline(ctx, raftlog.OfflineConfig{Dir: dir, Index: index + 1, Target: target, StateMachine: &recorder{}, Committed: applied})
	require.ErrorIs(t, err, api.ErrInvalid)
	text, err := os.ReadFile(target)
	require.NoError(t, err)
	require.Equal(t, "mine", string(text))
	require.NoError(t, os.Remove(target))

	snap := filepath.Join(dir, offline.SnapshotName)
	text, err = os.ReadFile(snap)
	require.NoError(t, err)
	text[len(text)/2] ^= 1
	damaged := t.TempDir()
	require.NoError(t, os.CopyFS(damaged, os.DirFS(dir)))
	require.NoError(t, os.WriteFile(filepath.Join(damaged, offline.SnapshotName), text, 0o600))
	_, err = raftlog.CompactOffline(ctx, raftlog.OfflineConfig{Dir: damaged, Index: index + 1, Target: target, StateMachine: &recorder{}, Committed: applied})
	require.ErrorIs(t, err, api.ErrFault)
	require.NoFileExists(t, target)
	require.Equal(t, before, listDirectory(t, dir), "the peer's files have changed")
}

// TestCompactFile_WithoutDataIsRejected checks that a peer with a state machine does not install a snapshot
// without data. CompactOffline creates such a snapshot if its caller sets no state machine and the peer's
// previous snapshot has no data either.
func TestCompactFile_WithoutDataIsRejected(t *testing.T) {
	dir := t.TempDir()
	n := openOnFiles(t, dir, &recorder{})
	ctx := contextWithin(t, 5*time.Minute)
	index, err := n.Propose(ctx, api.NewRequestID(), []byte("update"))
	require.NoError(t, err)
	target := filepath.Join(dir, "compact", "snap.new")
	_, err = raftlog.CompactOffline(ctx, raftlog.OfflineConfig{Dir: dir, Index: index, Target: target, Committed: index})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := os.Stat(target)
		return os.IsNotExist(err)
	}, time.Minute, 20*time.Millisecond)
	require.FileExists(t, target+".refused")
	require.Equal(t, uint64(1), n.Info().SnapshotIndex)
	require.NoError(t, n.Err())
}

// aheadMachine is a state machine that reports a greater applied index than the log contains.
type aheadMachine struct{ recorder }

func (*aheadMachine) LastApplied() (uint64, error) { return 1000, nil }

// listDirectory returns the name, size and modification time of each file in a directory tree.
func listDirectory(t *testing.T, dir string) (all []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		all = append(all, fmt.Sprint(p, info.Size(), info.ModTime()))
		return err
	}))
	return all
}
