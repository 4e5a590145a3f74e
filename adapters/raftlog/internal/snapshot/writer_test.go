package snapshot

import (
	"bytes"
	"errors"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
)

func TestWriter_RejectsTablesAfterData(t *testing.T) {
	d := newDisk(t, 0)
	w, err := Create(d, testDir, metaOf(1))
	require.NoError(t, err)
	_, err = w.Data().Write([]byte("x"))
	require.NoError(t, err)
	_, err = w.Tables().Write([]byte("x"))
	require.ErrorContains(t, err, "tables come first")
	require.Error(t, w.Commit())
	require.Empty(t, listNames(t, d))
}

func TestWriter_FailsAfterCommitAndAbort(t *testing.T) {
	d := newDisk(t, 0)
	w, err := Create(d, testDir, metaOf(1))
	require.NoError(t, err)
	require.NoError(t, w.Commit())
	w.Abort()
	require.ErrorIs(t, w.Commit(), fs.ErrClosed)
	_, err = w.Data().Write([]byte("x"))
	require.ErrorIs(t, err, fs.ErrClosed)
	r, err := Open(d, testDir)
	require.NoError(t, err)
	data := r.Data()
	require.NoError(t, data.Close())
	_, err = data.Read(make([]byte, 1))
	require.ErrorIs(t, err, fs.ErrClosed)
	require.NoError(t, r.Close())

	w, err = Create(d, testDir, metaOf(2))
	require.NoError(t, err)
	w.Abort()
	require.ErrorIs(t, w.Commit(), fs.ErrClosed)
	require.Equal(t, []string{"snap"}, listNames(t, d))
}

// countingDisk counts the bytes that were written to its files and are not synced.
type countingDisk struct {
	disk.FS
	unsynced, most int
	failure        error // the error that Sync returns, or nil
}

func (d *countingDisk) Create(name string) (disk.File, error) {
	f, err := d.FS.Create(name)
	return countingFile{f, d}, err
}

type countingFile struct {
	disk.File
	disk *countingDisk
}

func (f countingFile) WriteAt(p []byte, offset int64) (int, error) {
	f.disk.unsynced += len(p)
	f.disk.most = max(f.disk.most, f.disk.unsynced)
	return f.File.WriteAt(p, offset)
}

func (f countingFile) Sync() error {
	f.disk.unsynced = 0
	return errors.Join(f.disk.failure, f.File.Sync())
}

// TestWriter_SyncsWhileItWrites checks that a snapshot is synced in small parts while it is written or
// received, and that the error of such a sync is returned. Otherwise the system could collect a whole
// snapshot in memory, and syncs of the log would wait for it.
func TestWriter_SyncsWhileItWrites(t *testing.T) {
	const most = syncInterval + 4*maxChunk
	d := &countingDisk{FS: newDisk(t, 0)}
	require.NoError(t, writeSnapshot(d, 1, 2*syncInterval))
	require.Greater(t, d.most, maxChunk)
	require.LessOrEqual(t, d.most, most)

	received := &countingDisk{FS: newDisk(t, 0)}
	r, err := Install(received, testDir, bytes.NewReader(encodedSnapshot(t, 1, 2*syncInterval)))
	require.NoError(t, err)
	require.NoError(t, r.Close())
	require.Greater(t, received.most, maxChunk)
	require.LessOrEqual(t, received.most, most)

	d.failure = errors.New("broken disk")
	w, err := Create(d, testDir, metaOf(2))
	require.NoError(t, err)
	_, err = w.Data().Write(make([]byte, 2*syncInterval))
	require.ErrorIs(t, err, d.failure)
	w.Abort()
}
