package snapshot

import (
	"bytes"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
)

func TestCommitAndInstall_KeepBackupsOnRealFileSystem(t *testing.T) {
	d := disk.OS(t.TempDir())
	require.NoError(t, d.MkdirAll(testDir))
	_, err := Open(d, testDir)
	require.ErrorIs(t, err, fs.ErrNotExist)
	for i, size := range []int{0, 1, maxChunk, 3*maxChunk + 17} {
		require.NoError(t, writeSnapshot(d, uint64(i+1), size))
		require.EqualValues(t, i+1, requireIndex(t, d, size))
	}
	r, err := Install(d, testDir, bytes.NewReader(encodedSnapshot(t, 9, 200)))
	require.NoError(t, err)
	require.NoError(t, writeSnapshot(d, 10, 5))
	requireComplete(t, r, 200) // r remains readable after another snapshot has replaced its file
	require.NoError(t, r.Close())
	require.NoError(t, r.Close())
	createFile(t, d, "data/from-outside", encodedSnapshot(t, 11, 7))
	r, err = InstallFile(d, testDir, "data/from-outside")
	require.NoError(t, err)
	requireComplete(t, r, 7)
	require.NoError(t, r.Close())
	require.EqualValues(t, 11, requireIndex(t, d, 7))
	require.Equal(t, []string{
		"snap", "snap-20260203T040506Z-1.bak", "snap-20260203T040506Z-2.bak", "snap-20260203T040506Z-3.bak",
		"snap-20260203T040506Z-4.bak", "snap-20260203T040506Z-5.bak",
	}, listNames(t, d)[:6])
	old, err := OpenFile(d, "data/snap-20260203T040506Z-1.bak")
	require.NoError(t, err)
	requireComplete(t, old, 0)
	require.NoError(t, old.Close())
}
