package replica

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// fullState returns a state in which every field has a value other than zero.
func fullState(t *testing.T) *State {
	s := newState(Peer{ID: "a", Addr: "a:1", Raft: math.MaxUint64}, Peer{ID: strings.Repeat("b", 3000), Raft: 2})
	s.Index, s.Term, s.TransferTerm, s.skipsSum, s.History = 100, 7, 5, 1<<63, 1<<62
	s.Clock, s.Horizon = now.Add(time.Hour), now.Add(time.Nanosecond)
	m := &s.Members
	m.Index, m.Outgoing, m.Learners, m.Removed = 50, m.Voters[:1], []Peer{{ID: "c", Addr: "c:1", Raft: 3}}, []string{"d", ""}
	m.Change, m.Changed, m.Settled = api.RequestIDFrom(now, 1, 2), 60, 61
	s.Skips = []uint64{3, 99}
	s.IDs.Insert(api.RequestIDFrom(now, 3, 4), 80, 5)
	for i := range uint64(3) {
		require.NoError(t, s.Elections.applyOp(Op{Do: Join, Election: "e", Candidate: fmt.Sprint(i), Name: "n", Peer: i}, 10+i, now))
	}
	require.NoError(t, endElection(&s.Elections, "forgotten", 1, 10))
	require.NoError(t, endElection(&s.Elections, "first", 1, 20))
	require.NoError(t, endElection(&s.Elections, "second", 1, 30))
	_, err := s.Elections.forgetThrough(Op{Through: 12}, 90)
	require.NoError(t, err)
	return s
}

// TestRead_RestoresWrittenState checks that Read returns the state that WriteTo has
// written.
func TestRead_RestoresWrittenState(t *testing.T) {
	s := fullState(t)
	again := writeAndRead(t, s)
	require.Equal(t, s.IDs.Sum(), again.IDs.Sum())
	again.IDs = s.IDs
	require.Equal(t, uint64(12), again.Elections.forgotten)
	require.Equal(t, []transition{{20, now, "first"}, {30, now, "second"}}, again.Elections.transitions)
	require.Equal(t, s, again)
	writeAndRead(t, newState())
}

// TestView_DoesNotChangeWithState checks that a view does not share data that Apply modifies.
func TestView_DoesNotChangeWithState(t *testing.T) {
	s := fullState(t)
	s.Members.Outgoing = nil
	var before, after bytes.Buffer
	view := s.View()
	_, err := view.WriteTo(&before)
	require.NoError(t, err)
	for _, op := range []Op{
		{Do: End, Election: "e", Through: 100},
		{Do: Join, Election: "f", Candidate: "x", Peer: 9},
		{Do: Move, Peer: 2, Addr: "b:2"},
		{Do: Forget, Through: 30},
	} {
		require.NoError(t, applyControlOp(t, s, op).Err)
	}
	s.DropSkips(3)
	_, err = view.WriteTo(&after)
	require.NoError(t, err)
	require.Equal(t, before.Bytes(), after.Bytes())
}

// TestRead_RejectsInconsistentElections checks that Read returns an error if the elections in a
// snapshot contradict themselves or the index of the snapshot.
func TestRead_RejectsInconsistentElections(t *testing.T) {
	for what, change := range map[string]func(es *Elections, e *Election){
		"forgotten in the future": func(es *Elections, _ *Election) { es.forgotten = 101 },
		"ended in the future":     func(_ *Elections, e *Election) { e.EndedAt = 101 },
		"restarted in the future": func(_ *Elections, e *Election) { *e = Election{RestartedAt: 101} },
		"not ended":               func(_ *Elections, e *Election) { e.Ended = false },
		"ended and restarted":     func(_ *Elections, e *Election) { e.RestartedAt = 30 },
		"ended with a candidate":  func(_ *Elections, e *Election) { e.Candidates = []Candidate{{ID: "c"}} },
	} {
		s := fullState(t)
		e := s.Elections.Get("first")
		change(&s.Elections, &e)
		s.Elections.byName["first"] = e
		var b bytes.Buffer
		_, err := s.View().WriteTo(&b)
		require.NoError(t, err)
		_, err = Read(&b)
		require.ErrorIs(t, err, ErrMalformed, what)
	}
}

// TestRead_RejectsTruncatedAndForeignState checks that Read rejects each truncation of a state, does not panic if
// any bit is flipped, and names the cause if another version of the program has written the state.
func TestRead_RejectsTruncatedAndForeignState(t *testing.T) {
	s := fullState(t)
	var b bytes.Buffer
	_, err := s.View().WriteTo(&b)
	require.NoError(t, err)
	whole := b.Bytes()
	for n := range whole {
		_, err := Read(bytes.NewReader(whole[:n]))
		require.Error(t, err, n)
	}
	for i := range whole {
		for bit := range 8 {
			damaged := bytes.Clone(whole)
			damaged[i] ^= 1 << bit
			_, _ = Read(bytes.NewReader(damaged)) // must not panic, and may return any result
		}
	}
	for _, other := range []string{"\x00\x00\x01\x00{\"index\":1,\"term\":1}", "raftstate\x02" + string(whole[len(magic):])} {
		_, err = Read(strings.NewReader(other))
		require.ErrorIs(t, err, ErrMalformed)
		require.ErrorContains(t, err, "another version of this program has written it")
	}
	huge := append([]byte(magic), 0xff, 0xff, 0xff, 0xff)
	_, err = Read(bytes.NewReader(huge))
	require.ErrorIs(t, err, ErrMalformed)
	_, err = Read(io.MultiReader(bytes.NewReader(whole[:len(whole)-1]), strings.NewReader("x")))
	require.ErrorIs(t, err, ErrCorruptIDs)
}

// TestWriteTo_RejectsTooLargeRecord checks that a view is not written if its record is longer than Read
// accepts.
func TestWriteTo_RejectsTooLargeRecord(t *testing.T) {
	view := fullState(t).View()
	size := len(view.state.appendRecord(nil, view.state.Skips))
	var b bytes.Buffer
	_, err := view.writeLimited(&b, size-1)
	require.ErrorIs(t, err, api.ErrTooLarge)
	require.Empty(t, b.Bytes())
	_, err = view.writeLimited(&b, size)
	require.NoError(t, err)
	_, err = Read(&b)
	require.NoError(t, err)
}

// FuzzDecodeRecord decodes arbitrary bytes as the record of a snapshot. The decoder must reject the bytes, or
// decode the same state again after encoding it.
func FuzzDecodeRecord(f *testing.F) {
	f.Add([]byte{})
	s := State{Index: 9, Term: 1, Window: time.Hour, Election: time.Second, Elections: newElections()}
	f.Add(s.appendRecord(nil, []uint64{3}))
	s.Members.Voters, s.Members.Removed = []Peer{{ID: "a", Addr: "a:1", Raft: 7}}, []string{"b"}
	require.NoError(f, s.Elections.applyOp(Op{Do: Join, Election: "e", Candidate: "1", Name: "n", Peer: 7}, 5, now))
	f.Add(s.appendRecord(nil, nil))
	f.Fuzz(func(t *testing.T, record []byte) {
		s, err := decodeRecord(record)
		if err != nil {
			require.ErrorIs(t, err, ErrMalformed)
			return
		}
		again, err := decodeRecord(s.appendRecord(nil, s.Skips))
		require.NoError(t, err)
		require.Equal(t, s.appendRecord(nil, s.Skips), again.appendRecord(nil, again.Skips))
	})
}
