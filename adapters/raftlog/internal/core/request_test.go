package core

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// TestRequest_IsDecodedAsEncoded checks that decoding an encoded request returns the same request, that the data of
// an update is not encoded as text, and that malformed requests are rejected.
func TestRequest_IsDecodedAsEncoded(t *testing.T) {
	id := api.RequestIDFrom(time.Unix(1_700_000_000, 0), 1, 2)
	update := Request{Kind: api.KindState, ID: id, Data: make([]byte, 1<<20), Guard: replica.Guard{Election: "e", Token: 3}}
	for _, want := range []Request{
		update,
		{Kind: api.KindControl, ID: id, Op: replica.Op{Do: replica.Join, Election: "e", Candidate: "c"}},
		{Kind: api.KindConfig, ID: id, Voters: []api.Peer{{ID: "a", Addr: "b"}}},
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
		encodeRequest(1, Request{Kind: api.KindConfig, ID: id, Data: []byte("x")}),
		encodeRequest(1, Request{Kind: api.KindConfig, ID: id, Guard: replica.Guard{Election: "e", Token: 3}}),
		encodeRequest(1, Request{Kind: api.KindState, Data: []byte("x")}),
		append(encodeRequest(1, Request{Kind: api.KindControl, ID: id}), 'x'),
	} {
		_, _, err := decodeRequest(body)
		require.Error(t, err)
	}
}

// TestReply_ReportsUnknownOutcomeForOtherErrors checks that an error that package api does not define is decoded as
// an unknown outcome, and neither as a certain failure nor as a success.
func TestReply_ReportsUnknownOutcomeForOtherErrors(t *testing.T) {
	for sent, want := range map[error]error{
		&api.NotLeaderError{}: api.ErrNotLeader, api.ErrFenced: api.ErrFenced, errors.New("other"): api.ErrUnknownOutcome,
	} {
		seq, index, err, malformed := decodeReply(encodeReply(1, 2, sent))
		require.NoError(t, malformed)
		require.EqualValues(t, []uint64{1, 2}, []uint64{seq, index})
		require.ErrorIs(t, err, want)
		require.EqualError(t, err, sent.Error())
	}
	_, _, _, malformed := decodeReply([]byte{1, 2, 1, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0}) // a reply with unknown errors
	require.ErrorIs(t, malformed, errFrame)
}
