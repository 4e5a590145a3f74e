package filelog

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv"
)

// TestAppender_DefersCommitIndex checks that an Appender writes a hard state with only a newer commit
// index together with the next batch or in Finish, and protects the committed entries before that. It
// checks that a vote is not deferred.
func TestAppender_DefersCommitIndex(t *testing.T) {
	l := openLog(t, testenv.NewDisk(1), Options{})
	a := NewAppender(l)
	require.NoError(t, a.Append(Batch{HardState: stateMessage(1, 1, 0), Entries: newEntries(1, 5, 1, 10), Sync: true}))
	require.NoError(t, a.Append(Batch{HardState: stateMessage(1, 1, 3), Sync: true}))
	require.Zero(t, l.HardState().GetCommit(), "the hard state was written immediately")
	require.ErrorIs(t, a.Append(Batch{Entries: newEntries(3, 3, 2, 10), Sync: true}), ErrTruncatesCommitted)
	require.Zero(t, l.HardState().GetCommit())
	require.NoError(t, a.Append(Batch{HardState: stateMessage(1, 1, 4), Sync: true}))
	require.NoError(t, a.Append(Batch{Entries: newEntries(6, 1, 1, 10), Sync: true}))
	require.EqualValues(t, 4, l.HardState().GetCommit())

	require.NoError(t, a.Append(Batch{HardState: stateMessage(2, 2, 4), Sync: true}))
	require.EqualValues(t, 2, l.HardState().GetVote())
	require.NoError(t, a.Append(Batch{HardState: stateMessage(2, 2, 6), Sync: true}))
	require.NoError(t, a.Finish())
	require.EqualValues(t, 6, l.HardState().GetCommit())
}
