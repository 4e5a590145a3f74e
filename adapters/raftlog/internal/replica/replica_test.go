package replica

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// The history depends on every entry, on its term, on its data, and on whether it was applied;
// and a snapshot keeps it.
func TestHistory(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	update := func(id uint64, data string) []byte {
		h := entry.Header{Kind: api.KindState, ID: requestid.From(now, id, 0), Time: now, Sum: entry.Sum([]byte(data))}
		return entry.Encode(h, []byte(data))
	}
	type written struct {
		term uint64
		data []byte
	}
	window := time.Hour
	history := func(entries ...written) uint64 {
		s := New([]entry.Peer{{ID: "a", Raft: 1}}, window, time.Second)
		for _, e := range entries {
			_, err := s.Apply(&raftpb.Entry{Index: new(s.Index + 1), Term: &e.term, Type: raftpb.EntryNormal.Enum(), Data: e.data})
			require.NoError(t, err)
		}
		var b bytes.Buffer
		_, err := s.View().WriteTo(&b)
		require.NoError(t, err)
		again, err := Read(&b)
		require.NoError(t, err)
		require.Equal(t, s.History, again.History)
		return s.History
	}
	seen := map[uint64]bool{}
	for i, h := range []uint64{
		history(),
		history(written{1, nil}),
		history(written{2, nil}),
		history(written{1, nil}, written{1, nil}),
		history(written{1, update(1, "x")}),
		history(written{1, update(1, "y")}),
		history(written{1, update(2, "x")}),
		history(written{2, update(1, "x")}),
		history(written{1, update(1, "x")}, written{1, update(1, "x")}),
		history(written{1, update(1, "x")}, written{1, update(2, "x")}),
		history(written{1, update(2, "x")}, written{1, update(1, "x")}),
	} {
		require.False(t, seen[h], i)
		seen[h] = true
	}
	// By a shorter window the same entry is refused.
	stale := requestid.From(now.Add(-time.Minute), 1, 0)
	e := written{1, entry.Encode(entry.Header{Kind: api.KindState, ID: stale, Time: now, Sum: entry.Sum(nil)}, nil)}
	applied := history(e)
	window = time.Second
	require.NotEqual(t, applied, history(e))
}
