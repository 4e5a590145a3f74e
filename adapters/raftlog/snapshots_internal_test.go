package raftlog

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv"
)

// TestSending_NewerSnapshotCancelsOlder checks that beginSnapshot cancels an older snapshot that is being sent
// to the same peer, and that the older snapshot, when it ends, does not count as the newer snapshot.
func TestSending_NewerSnapshotCancelsOlder(t *testing.T) {
	s := sending{}
	first, _, endFirst := s.beginSnapshot(t.Context(), "b")
	other, _, endOther := s.beginSnapshot(t.Context(), "c")
	second, _, endSecond := s.beginSnapshot(t.Context(), "b")
	require.Error(t, first.Err())
	require.NoError(t, second.Err())
	require.NoError(t, other.Err())
	require.False(t, endFirst())
	require.True(t, endSecond())
	require.True(t, endOther())
	require.Empty(t, s)
	third, _, endThird := s.beginSnapshot(t.Context(), "b")
	require.NoError(t, third.Err())
	require.True(t, endThird())
}

// TestCopyTo_RecognizesFullDisk checks that copyTo reports ENOSPC and EDQUOT, and no other error, as a full
// disk, and reserves space before it reads.
func TestCopyTo_RecognizesFullDisk(t *testing.T) {
	for failure, full := range map[error]bool{syscall.ENOSPC: true, syscall.EDQUOT: true, syscall.EIO: false, syscall.EPERM: false} {
		for operation := 2; operation <= 4; operation++ { // the operations after Create: Allocate, WriteAt and Sync
			d := testenv.NewDisk(1)
			d.FailWith(d.Ops()+operation, failure)
			from := strings.NewReader("content")
			err := copyTo(d, "snap", io.LimitReader(from, 7), 7)
			require.Equal(t, operation == 2, from.Len() == 7, "space is reserved before anything is received")
			require.ErrorIs(t, err, failure)
			require.Equal(t, full, errors.Is(err, api.ErrNoSpace), err)
		}
	}
}
