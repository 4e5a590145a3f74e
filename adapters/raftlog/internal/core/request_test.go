package core

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/api"
)

// TestReplies: an error that says nothing of what was done is not taken for none.
func TestReplies(t *testing.T) {
	for sent, want := range map[error]error{
		&api.NotLeaderError{}: api.ErrNotLeader, api.ErrFenced: api.ErrFenced, errors.New("other"): api.ErrUnknownOutcome,
	} {
		seq, index, err, malformed := decodeReply(encodeReply(1, 2, sent))
		require.NoError(t, malformed)
		require.EqualValues(t, []uint64{1, 2}, []uint64{seq, index})
		require.ErrorIs(t, err, want)
		require.EqualError(t, err, sent.Error())
	}
	_, _, _, malformed := decodeReply(fmt.Appendf(nil, `{"error":%d}`, api.AllErrors+1))
	require.ErrorIs(t, malformed, errFrame)
}
