package core

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// TestRequests: a request is decoded as it was encoded, updates are not encoded as text, and
// malformed requests are rejected.
func TestRequests(t *testing.T) {
	id := requestid.From(time.Unix(1_700_000_000, 0), 1, 2)
	update := Request{Kind: api.State, ID: id, Data: make([]byte, 1<<20), Guard: entry.Guard{Election: "e", Token: 3}}
	for _, want := range []Request{
		update,
		{Kind: api.Control, ID: id, Op: entry.Op{Do: entry.Join, Election: "e", Candidate: "c"}},
		{Kind: api.Config, ID: id, To: []api.Peer{{ID: "a", Addr: "b"}}},
	} {
		body := encodeRequest(7, want)
		require.Less(t, len(body), len(want.Data)+1<<10)
		seq, got, err := decodeRequest(body)
		require.NoError(t, err)
		require.Equal(t, uint64(7), seq)
		if len(want.Data) == 0 {
			require.Empty(t, got.Data)
			got.Data = nil
		}
		require.Equal(t, want, got)
	}
	body := encodeRequest(7, update)
	for n := range len(body) - len(update.Data) {
		_, _, err := decodeRequest(body[:n])
		require.Error(t, err, n)
	}
	for _, body := range [][]byte{
		{0xff, 0xff, 0xff, 0xff, '{', '}'},
		append(encodeRequest(1, Request{Kind: api.Control, ID: id}), 'x'),
	} {
		_, _, err := decodeRequest(body)
		require.Error(t, err)
	}
}

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
