package snapshot

import (
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"
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
