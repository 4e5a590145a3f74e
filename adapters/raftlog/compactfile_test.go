package raftlog_test

// Snapshots that another program has made of a peer's log.

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/snapshot"
)

// made writes the newest snapshot of a peer, changed, as the file of another program.
func (w *world) made(t testing.TB, of api.Peer, file string, change func(*snapshot.Meta)) {
	t.Helper()
	r, err := snapshot.OpenFile(w.disks[of.ID], snapshot.Name)
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

func TestCompactFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "snap.new")
	watches := func(c *raftlog.Config) { c.CompactFile = file }
	inWorld(t, 3, func(t *testing.T, w *world) {
		p := w.others(w.leader(t))[0]
		other := w.others(p)[0]
		require.NoError(t, w.stop(p))
		w.start(p, slowly, minute, watches)
		w.propose(t, p, few("a", 10)...)
		time.Sleep(4 * time.Minute)
		w.propose(t, p, "b")
		n := w.node(p)
		taken := func(why string) {
			t.Helper()
			_, err := w.node(other).Compact(within(t, time.Minute))
			require.NoError(t, err, why)
		}
		refused := func(why string) {
			t.Helper()
			before := n.Info().SnapshotIndex
			await(t, why, func() bool { return !exists(t, file) })
			require.True(t, exists(t, file+".refused"), why)
			require.NoError(t, os.Remove(file+".refused"))
			require.Equal(t, before, n.Info().SnapshotIndex, why)
			require.Empty(t, w.files(t, p, ".", "snap.received"), why)
			require.NoError(t, n.Err(), why)
		}
		require.NoError(t, w.node(other).Sync(within(t, time.Minute)))
		taken("of the same history")

		w.made(t, other, file, func(m *snapshot.Meta) { m.Term++ })
		refused("another term")
		w.made(t, other, file, func(m *snapshot.Meta) { m.Index-- })
		refused("another index than that of its tables")
		w.made(t, other, file, func(m *snapshot.Meta) { m.Cluster = "other" })
		refused("another cluster")
		require.NoError(t, os.WriteFile(file, []byte("no snapshot"), 0o600))
		refused("no snapshot at all")
		w.made(t, other, file, func(*snapshot.Meta) {})
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		text[len(text)/2] ^= 1
		require.NoError(t, os.WriteFile(file, text, 0o600))
		refused("damaged")

		w.made(t, other, file, func(*snapshot.Meta) {})
		index := w.node(other).Info().SnapshotIndex
		await(t, "it is taken over", func() bool { return n.Info().SnapshotIndex == index })
		await(t, "the file is consumed", func() bool { return !exists(t, file) })
		require.False(t, exists(t, file+".refused"))
		await(t, "the log begins behind it", func() bool { return n.Info().FirstIndex > 10 })
		require.NotEmpty(t, w.files(t, p, ".", "snap-"), "the one before is kept")

		w.made(t, other, file, func(*snapshot.Meta) {})
		refused("no newer than the present one")
		heal := w.isolate(p)
		w.propose(t, other, few("c", 5)...)
		taken("newer")
		w.made(t, other, file, func(*snapshot.Meta) {})
		refused("newer than what the peer has applied")
		heal()
		w.crash(p)
		w.start(p, slowly, minute)
		w.has(t, w.peers, append(append(few("a", 10), "b"), few("c", 5)...)...)
	}, slowly, minute)
}
