package filelog

// A log in memory, as simple as can be, and random operations for both.

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv/crashdisk"
)

// model is a log: entry i of entries has the index mark+1+i.
type model struct {
	mark    mark
	entries []*raftpb.Entry
	state   state
}

func (m model) last() uint64 { return m.mark.index + uint64(len(m.entries)) }

func (m model) term(i uint64) uint64 {
	if i == m.mark.index {
		return m.mark.term
	}
	return m.entries[i-m.mark.index-1].GetTerm()
}

func (m model) equal(o model) bool {
	if m.mark != o.mark || m.state != o.state || len(m.entries) != len(o.entries) {
		return false
	}
	for i := range m.entries {
		if !proto.Equal(m.entries[i], o.entries[i]) {
			return false
		}
	}
	return true
}

func (m model) String() string {
	s := fmt.Sprintf("mark %d/%d state %+v entries", m.mark.index, m.mark.term, m.state)
	for _, e := range m.entries {
		s += fmt.Sprintf(" %d/%d:%d", e.GetIndex(), e.GetTerm(), len(e.Data))
	}
	return s
}

// op is one operation of a script.
type op struct {
	batch   Batch
	compact uint64
	reset   mark
	reopen  bool
}

func (o op) synced() bool { return o.compact > 0 || o.reset.index > 0 || o.batch.Sync }

// after is the model after an operation.
func (m model) after(o op) model {
	switch {
	case o.reopen:
	case o.compact > 0:
		n := o.compact - m.mark.index
		m.mark = mark{o.compact, m.term(o.compact)}
		m.entries = m.entries[n:]
		m.state.raise(o.compact)
	case o.reset.index > 0:
		m.mark, m.entries = o.reset, nil
		m.state.raise(o.reset.index)
	default:
		if e := o.batch.Entries; len(e) > 0 {
			kept := m.entries[:e[0].GetIndex()-m.mark.index-1]
			m.entries = append(kept[:len(kept):len(kept)], e...)
		}
		if o.batch.HardState != nil {
			commit := m.state.commit
			m.state = stateOf(o.batch.HardState)
			m.state.raise(commit)
			m.state.raise(m.mark.index)
		}
	}
	return m
}

func (o op) do(l *Log) error {
	switch {
	case o.compact > 0:
		return l.Compact(o.compact)
	case o.reset.index > 0:
		return l.Reset(o.reset.index, o.reset.term)
	}
	return l.Append(o.batch)
}

// read is what a log says it holds.
func read(t require.TestingT, l *Log) model {
	first, err := l.FirstIndex()
	require.NoError(t, err)
	last, err := l.LastIndex()
	require.NoError(t, err)
	term, err := l.Term(first - 1)
	require.NoError(t, err)
	m := model{mark: mark{first - 1, term}, state: stateOf(l.HardState())}
	for lo := first; lo <= last; {
		part, err := l.Entries(lo, last+1, raftNoLimit)
		require.NoError(t, err)
		require.NotEmpty(t, part)
		m.entries = append(m.entries, part...)
		lo += uint64(len(part))
	}
	for i, e := range m.entries {
		require.Equal(t, first+uint64(i), e.GetIndex())
		term, err := l.Term(e.GetIndex())
		require.NoError(t, err)
		require.Equal(t, e.GetTerm(), term)
	}
	return m
}

const raftNoLimit = ^uint64(0)

func entry(index, term uint64, data []byte) *raftpb.Entry {
	return &raftpb.Entry{Index: &index, Term: &term, Data: data}
}

func entries(first, n, term uint64, size int) []*raftpb.Entry {
	var list []*raftpb.Entry
	for i := range n {
		list = append(list, entry(first+i, term, fmt.Appendf(nil, "%0*d", size, first+i)))
	}
	return list
}

func hard(term, vote, commit uint64) *raftpb.HardState {
	return state{term, vote, commit, true}.message()
}

// random is an operation that a raft node might do next.
func (m model) random(r *rand.Rand, sync bool) op {
	commit := max(m.state.commit, m.mark.index)
	switch n := r.IntN(40); {
	case n == 0:
		return op{reopen: true}
	case n < 3 && m.last() > m.mark.index:
		return op{compact: m.mark.index + 1 + uint64(r.Int64N(int64(m.last()-m.mark.index)))}
	case n == 4:
		return op{reset: mark{m.last() + uint64(r.IntN(5)) + 1, m.term(m.last()) + uint64(r.IntN(2))}}
	}
	b := Batch{Sync: sync || r.IntN(3) > 0}
	last := m.last()
	if r.IntN(4) > 0 {
		first := last + 1
		term := m.term(last) + uint64(r.IntN(8)/7)
		if r.IntN(5) == 0 && last > commit {
			first = commit + 1 + uint64(r.Int64N(int64(last-commit)))
			term = m.term(last) + 1
		}
		n := uint64(1 + r.IntN(6))
		for i := range n {
			data := make([]byte, r.IntN(300))
			for j := range data {
				data[j] = byte(r.Uint32())
			}
			e := entry(first+i, max(term, 1), data)
			if r.IntN(3) == 0 {
				e.Type = raftpb.EntryType(r.IntN(3)).Enum()
			}
			b.Entries = append(b.Entries, e)
		}
		last = first + n - 1
	}
	if r.IntN(3) == 0 || b.Entries == nil {
		term := max(m.state.term, m.term(m.last())) + uint64(r.IntN(2))
		vote := uint64(1 + r.IntN(3))
		if term == m.state.term && m.state.vote != 0 {
			vote = m.state.vote
		}
		b.HardState = hard(term, vote, commit+uint64(r.Int64N(int64(last-commit)+1)))
	}
	return op{batch: b}
}

func TestLogIsAsAModel(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			fs := crashdisk.New(r)
			o := Options{SegmentSize: 4096 << (seed % 3), CacheSize: []int64{-1, 3000, 0}[seed%3]}
			l, err := Open(fs, "data/log", o)
			require.NoError(t, err)
			defer func() { require.NoError(t, l.Close()) }()
			var m model
			for i := range 400 {
				step := m.random(r, false)
				if step.reopen {
					require.NoError(t, l.Close())
					l, err = Open(fs, "data/log", o)
					require.NoError(t, err)
				} else {
					require.NoError(t, step.do(l), "step %d", i)
				}
				m = m.after(step)
				if i%5 == 0 || step.reopen {
					got := read(t, l)
					require.True(t, m.equal(got), "step %d (%+v):\nwant %v\ngot  %v", i, step, m, got)
				}
				readSome(t, r, l, m)
			}
		})
	}
}

// readSome compares a random range, and the errors about it.
func readSome(t *testing.T, r *rand.Rand, l *Log, m model) {
	lo := uint64(r.Int64N(int64(m.last() + 3)))
	hi := lo + uint64(r.IntN(10))
	limit := uint64(r.IntN(1000))
	got, err := l.Entries(lo, hi, limit)
	_, termErr := l.Term(lo)
	switch {
	case lo < m.mark.index:
		require.ErrorIs(t, termErr, raft.ErrCompacted)
	case lo > m.last():
		require.ErrorIs(t, termErr, raft.ErrUnavailable)
	default:
		require.NoError(t, termErr)
	}
	switch {
	case lo <= m.mark.index:
		require.ErrorIs(t, err, raft.ErrCompacted)
		return
	case hi > m.last()+1:
		require.ErrorIs(t, err, raft.ErrUnavailable)
		return
	}
	require.NoError(t, err)
	var size uint64
	want := m.entries[lo-m.mark.index-1 : hi-m.mark.index-1]
	for i, e := range want {
		size += uint64(proto.Size(e))
		if i > 0 && size > limit {
			want = want[:i]
			break
		}
	}
	require.Len(t, got, len(want))
	for i := range want {
		require.True(t, proto.Equal(want[i], got[i]))
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
