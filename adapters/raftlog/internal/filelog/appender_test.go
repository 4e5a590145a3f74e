package filelog

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPutOff: a commit index alone is not written by itself, what it says is committed is not
// replaced, and it comes with the next write or the last one.
func TestPutOff(t *testing.T) {
	d := newDisk()
	l := open(t, d, Options{})
	a := NewAppender(l)
	require.NoError(t, a.Append(Batch{HardState: hard(1, 1, 0), Entries: entries(1, 5, 1, 10), Sync: true}))
	require.NoError(t, a.Append(Batch{HardState: hard(1, 1, 3), Sync: true}))
	require.Zero(t, l.HardState().GetCommit(), "nothing was written")
	require.ErrorIs(t, a.Append(Batch{Entries: entries(3, 3, 2, 10), Sync: true}), ErrTruncatesCommitted)
	require.Zero(t, l.HardState().GetCommit())
	require.NoError(t, a.Append(Batch{HardState: hard(1, 1, 4), Sync: true}))
	require.NoError(t, a.Append(Batch{Entries: entries(6, 1, 1, 10), Sync: true}))
	require.EqualValues(t, 4, l.HardState().GetCommit())

	// A vote is not put off.
	require.NoError(t, a.Append(Batch{HardState: hard(2, 2, 4), Sync: true}))
	require.EqualValues(t, 2, l.HardState().GetVote())
	require.NoError(t, a.Append(Batch{HardState: hard(2, 2, 6), Sync: true}))
	require.NoError(t, a.Finish())
	require.EqualValues(t, 6, l.HardState().GetCommit())
}
