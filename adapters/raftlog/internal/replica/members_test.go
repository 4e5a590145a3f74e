package replica

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// TestChangeWhileAnotherIsUnderWay: one of another ID is refused; the same one, written once
// more, is answered with the first.
func TestChangeWhileAnotherIsUnderWay(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	a, b, c := entry.Peer{ID: "a", Raft: 1}, entry.Peer{ID: "b", Raft: 2}, entry.Peer{ID: "c", Raft: 3}
	s := New([]entry.Peer{a, b, c}, time.Hour, time.Second)
	change := func(id requestid.ID, voters ...entry.Peer) Outcome {
		data := entry.Config{Phase: entry.Joint, Peers: voters}.Encode()
		raw, err := proto.Marshal(&raftpb.ConfChangeV2{
			Context: entry.Encode(entry.Header{Kind: api.KindConfig, ID: id, Time: now, Sum: entry.Sum(data)}, data),
		})
		require.NoError(t, err)
		o, err := s.Apply(&raftpb.Entry{Index: new(s.Index + 1), Term: new(uint64(1)), Type: raftpb.EntryConfChangeV2.Enum(), Data: raw})
		require.NoError(t, err)
		return o
	}
	first, second := requestid.From(now, 1, 1), requestid.From(now, 2, 2)
	begun := change(first, a, b)
	require.NoError(t, begun.Err)
	require.False(t, begun.Skipped())

	other := change(second, a, c)
	require.ErrorIs(t, other.Err, api.ErrChanging)
	require.Nil(t, other.Change)
	again := change(first, a, b)
	require.NoError(t, again.Err)
	require.Equal(t, begun.Index, again.First)
	require.True(t, again.Skipped())
	require.Nil(t, again.Change)
	require.ErrorIs(t, change(first, a, c).Err, api.ErrRequestIDReused)
	require.Equal(t, []entry.Peer{a, b}, s.Members.Voters)
}
