package replica

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// now is the time of the entries in these tests.
var now = time.Unix(1_700_000_000, 0).UTC()

func newState(voters ...Peer) *State { return New(voters, time.Hour, time.Second) }

// applyRaw applies an entry with the given content as the next entry.
func applyRaw(t *testing.T, s *State, term uint64, kind raftpb.EntryType, data []byte) Outcome {
	t.Helper()
	o, err := s.Apply(&raftpb.Entry{Index: new(s.Index + 1), Term: &term, Type: kind.Enum(), Data: data})
	require.NoError(t, err)
	return o
}

// applyVoters applies a Config entry with the given phase and voters.
func applyVoters(t *testing.T, s *State, id api.RequestID, phase Phase, voters ...Peer) Outcome {
	t.Helper()
	data := Config{Phase: phase, Peers: voters}.Encode()
	raw, err := proto.Marshal(&raftpb.ConfChangeV2{
		Context: EncodeEntry(Header{Kind: api.KindConfig, ID: id, Time: now, Sum: Sum(data)}, data),
	})
	require.NoError(t, err)
	return applyRaw(t, s, 1, raftpb.EntryConfChangeV2, raw)
}

// applyControlOp applies a Control entry with the given operation.
func applyControlOp(t *testing.T, s *State, op Op) Outcome {
	t.Helper()
	data := op.Encode()
	header := Header{Kind: api.KindControl, ID: api.RequestIDFrom(now, s.Index, 2), Time: now, Sum: Sum(data)}
	return applyRaw(t, s, 1, raftpb.EntryNormal, EncodeEntry(header, data))
}

// writeAndRead writes a state and returns the state that Read returns.
func writeAndRead(t *testing.T, s *State) *State {
	t.Helper()
	var b bytes.Buffer
	n, err := s.View().WriteTo(&b)
	require.NoError(t, err)
	require.EqualValues(t, b.Len(), n)
	again, err := Read(&b)
	require.NoError(t, err)
	require.Equal(t, s.Sum(), again.Sum())
	return again
}

// TestHistory_DependsOnEveryEntry checks that History changes with each entry, and depends on the entry's
// term, data and outcome, and that a snapshot contains History.
func TestHistory_DependsOnEveryEntry(t *testing.T) {
	update := func(id uint64, data string) []byte {
		h := Header{Kind: api.KindState, ID: api.RequestIDFrom(now, id, 0), Time: now, Sum: Sum([]byte(data))}
		return EncodeEntry(h, []byte(data))
	}
	type logEntry struct {
		term uint64
		data []byte
	}
	window := time.Hour
	history := func(entries ...logEntry) uint64 {
		s := newState(Peer{ID: "a", Raft: 1})
		s.Window = window
		for _, e := range entries {
			applyRaw(t, s, e.term, raftpb.EntryNormal, e.data)
		}
		require.Equal(t, s.History, writeAndRead(t, s).History)
		return s.History
	}
	seen := map[uint64]bool{}
	for i, h := range []uint64{
		history(),
		history(logEntry{1, nil}),
		history(logEntry{2, nil}),
		history(logEntry{1, nil}, logEntry{1, nil}),
		history(logEntry{1, update(1, "x")}),
		history(logEntry{1, update(1, "y")}),
		history(logEntry{1, update(2, "x")}),
		history(logEntry{2, update(1, "x")}),
		history(logEntry{1, update(1, "x")}, logEntry{1, update(1, "x")}),
		history(logEntry{1, update(1, "x")}, logEntry{1, update(2, "x")}),
		history(logEntry{1, update(2, "x")}, logEntry{1, update(1, "x")}),
	} {
		require.False(t, seen[h], i)
		seen[h] = true
	}
	// A state with a shorter window rejects the same entry.
	stale := api.RequestIDFrom(now.Add(-time.Minute), 1, 0)
	e := logEntry{1, EncodeEntry(Header{Kind: api.KindState, ID: stale, Time: now, Sum: Sum(nil)}, nil)}
	applied := history(e)
	window = time.Second
	require.NotEqual(t, applied, history(e))
}
