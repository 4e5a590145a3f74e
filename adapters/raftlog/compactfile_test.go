package raftlog_test

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/snapshot"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// copySnapshot copies the newest snapshot of the peer to a file, and calls change to modify the metadata of the
// copy.
func (h *harness) copySnapshot(t testing.TB, from api.Peer, file string, change func(*snapshot.Meta)) {
	t.Helper()
	r, err := snapshot.OpenFile(h.disks[from.ID], snapshot.Name)
	require.NoError(t, err)
	defer r.Close()
	dir := t.TempDir()
	m := r.Meta()
	change(&m)
	to, err := snapshot.Create(disk.OS(dir), ".", m)
	require.NoError(t, err)
	_, err = io.Copy(to.Tables(), r.Tables())
	require.NoError(t, err)
	data := r.Data()
	defer data.Close()
	_, err = io.Copy(to.Data(), data)
	require.NoError(t, err)
	require.NoError(t, to.Commit())
	require.NoError(t, os.Rename(filepath.Join(dir, snapshot.Name), file))
}

func exists(t testing.TB, name string) bool {
	t.Helper()
	_, err := os.Stat(name)
	if os.IsNotExist(err) {
		return false
	}
	require.NoError(t, err)
	return true
}

// TestCompactFile_InstallsNewerSnapshot checks that a peer installs the snapshot in CompactFile only if it is
// newer than the peer's snapshot, belongs to the history of the peer's log, and ends at an entry that the peer
// has applied.
func TestCompactFile_InstallsNewerSnapshot(t *testing.T) {
	file := filepath.Join(t.TempDir(), "snap.new")
	watches := func(c *raftlog.Config) { c.CompactFile = file }
	runCluster(t, 3, func(t *testing.T, h *harness) {
		p := h.otherPeers(h.waitForLeader(t))[0]
		other := h.otherPeers(p)[0]
		h.restart(t, p, slowElections, shortWindow, watches)
		h.proposeAll(t, p, numberedUpdates("a", 10)...)
		time.Sleep(4 * time.Minute)
		h.proposeAll(t, p, "b")
		n := h.nodeOf(p)
		refused := func(why string) {
			t.Helper()
			before := n.Info().SnapshotIndex
			waitFor(t, why, func() bool { return !exists(t, file) })
			require.True(t, exists(t, file+".refused"), why)
			require.NoError(t, os.Remove(file+".refused"))
			require.Equal(t, before, n.Info().SnapshotIndex, why)
			require.Empty(t, h.listFiles(t, p, ".", "snap.received"), why)
			require.NoError(t, n.Err(), why)
		}
		h.syncPeer(t, other)
		h.compact(t, other)

		h.copySnapshot(t, other, file, func(m *snapshot.Meta) { m.Term++ })
		refused("another term")
		h.copySnapshot(t, other, file, func(m *snapshot.Meta) { m.Index-- })
		refused("the metadata and the tables have different indexes")
		h.copySnapshot(t, other, file, func(m *snapshot.Meta) { m.Cluster = "other" })
		refused("another cluster")
		require.NoError(t, os.WriteFile(file, []byte("no snapshot"), 0o600))
		refused("no snapshot at all")
		h.copySnapshot(t, other, file, func(*snapshot.Meta) {})
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		text[len(text)/2] ^= 1
		require.NoError(t, os.WriteFile(file, text, 0o600))
		refused("damaged")

		h.copySnapshot(t, other, file, func(*snapshot.Meta) {})
		index := h.nodeOf(other).Info().SnapshotIndex
		waitFor(t, "the snapshot is installed", func() bool { return n.Info().SnapshotIndex == index })
		waitFor(t, "the file is deleted", func() bool { return !exists(t, file) })
		require.False(t, exists(t, file+".refused"))
		waitFor(t, "the log starts after the snapshot", func() bool { return n.Info().FirstIndex > 10 })
		require.NotEmpty(t, h.listFiles(t, p, ".", "snap-"), "the previous snapshot is kept")

		h.copySnapshot(t, other, file, func(*snapshot.Meta) {})
		refused("not newer than the snapshot of the peer")
		heal := h.isolate(p)
		h.proposeAll(t, other, numberedUpdates("c", 5)...)
		h.compact(t, other)
		h.copySnapshot(t, other, file, func(*snapshot.Meta) {})
		refused("newer than the last entry that the peer has applied")
		heal()
		h.crashPeer(p)
		h.startPeer(p, slowElections, shortWindow)
		h.requireUpdates(t, h.peers, append(append(numberedUpdates("a", 10), "b"), numberedUpdates("c", 5)...)...)
	}, slowElections, shortWindow)
}

// diskWithoutDescriptors is a disk on which the creation of a file for a received snapshot fails with EMFILE,
// as if the process had no free file descriptor.
type diskWithoutDescriptors struct{ disk.FS }

func (n diskWithoutDescriptors) Create(name string) (disk.File, error) {
	if strings.HasPrefix(name, "snap.received-") {
		return nil, &os.PathError{Op: "create", Path: name, Err: syscall.EMFILE}
	}
	return n.FS.Create(name)
}

// TestCompactFile_UnreadableFileIsRenamed checks that a file that cannot be opened or copied is renamed, and
// that a single message contains the reason. The peer must neither copy a file that is not a snapshot nor log a part
// of it, because another user could have made the path refer to a secret file.
func TestCompactFile_UnreadableFileIsRenamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "snap.new")
	for reason, create := range map[string]func(t *testing.T, h *harness){
		syscall.EMFILE.Error(): func(t *testing.T, h *harness) { h.copySnapshot(t, h.peers[0], file, func(*snapshot.Meta) {}) },
		"the file is not a snapshot": func(t *testing.T, _ *harness) {
			require.NoError(t, os.WriteFile(file, []byte("password of root"), 0o600))
		},
		"a link is not followed": func(t *testing.T, _ *harness) { require.NoError(t, os.Symlink("snap.new", file)) },
	} {
		t.Run(reason, func(t *testing.T) {
			var messages testenv.Buffer
			runCluster(t, 1, func(t *testing.T, h *harness) {
				p := h.peers[0]
				h.proposeAll(t, p, "a")
				h.compact(t, p)
				require.NoError(t, h.stopPeer(p))
				h.startPeer(p, func(c *raftlog.Config) {
					c.CompactFile, c.Logger = file, slog.New(slog.NewTextHandler(&messages, nil))
					*c = c.OnDisk(diskWithoutDescriptors{h.disks[p.ID]})
				})
				create(t, h)
				time.Sleep(5 * time.Second)
				require.False(t, exists(t, file))
				require.NoError(t, os.Remove(file+".refused"))
				require.Equal(t, 1, strings.Count(messages.String(), "rejected and renamed"), messages.String())
				require.Contains(t, messages.String(), reason)
				require.NotContains(t, messages.String(), "password")
			})
		})
	}
}
