package filelog

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	noLimit      = ^uint64(0)
	smallSegment = 64 << 10
)

// openLog opens the log in the directory named log, and closes the log when the test has completed.
func openLog(t testing.TB, d disk.FS, o Options) *Log {
	t.Helper()
	l, err := Open(d, "log", o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

func entry(index, term uint64, data []byte) *raftpb.Entry {
	return &raftpb.Entry{Index: &index, Term: &term, Data: data}
}

// newEntries returns n entries with the given first index and term. The data of each entry has size
// bytes and ends with the entry's index.
func newEntries(first, n, term uint64, size int) []*raftpb.Entry {
	var list []*raftpb.Entry
	for i := range n {
		list = append(list, entry(first+i, term, fmt.Appendf(nil, "%0*d", size, first+i)))
	}
	return list
}

func stateMessage(term, vote, commit uint64) *raftpb.HardState {
	return hardState{term, vote, commit, true}.message()
}

// model is the content that a log must have. entries[i] has the index mark.index+1+i.
type model struct {
	mark    mark
	entries []*raftpb.Entry
	state   hardState
}

func (m model) lastIndex() uint64 { return m.mark.index + uint64(len(m.entries)) }

func (m model) termOf(i uint64) uint64 {
	if i == m.mark.index {
		return m.mark.term
	}
	return m.entries[i-m.mark.index-1].GetTerm()
}

func (m model) requireEqual(o model) bool {
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

// operation is one change of a log: exactly one of reopen, compact, reset and batch.
type operation struct {
	batch   Batch
	compact uint64
	reset   mark
	reopen  bool
}

// isSynced reports whether the operation, and all earlier operations, are durable when the operation
// returns.
func (o operation) isSynced() bool { return o.compact > 0 || o.reset.index > 0 || o.batch.Sync }

func (o operation) apply(l *Log) error {
	switch {
	case o.compact > 0:
		return l.Compact(o.compact)
	case o.reset.index > 0:
		return l.Reset(o.reset.index, o.reset.term)
	}
	return l.Append(o.batch)
}

// applyOperation returns the model of the log after an operation.
func (m model) applyOperation(o operation) model {
	switch {
	case o.reopen:
	case o.compact > 0:
		n := o.compact - m.mark.index
		m.mark = mark{o.compact, m.termOf(o.compact)}
		m.entries = m.entries[n:]
		m.state.raiseCommit(o.compact)
	case o.reset.index > 0:
		m.mark, m.entries = o.reset, nil
		m.state.raiseCommit(o.reset.index)
	default:
		if e := o.batch.Entries; len(e) > 0 {
			kept := m.entries[:e[0].GetIndex()-m.mark.index-1]
			m.entries = append(kept[:len(kept):len(kept)], e...)
		}
		if o.batch.HardState != nil {
			commit := m.state.commit
			m.state = hardStateOf(o.batch.HardState)
			m.state.raiseCommit(commit)
			m.state.raiseCommit(m.mark.index)
		}
	}
	return m
}

// randomOperation returns a random operation that a Raft peer could execute on a log with the content
// m.
func (m model) randomOperation(r *rand.Rand) operation {
	commit := max(m.state.commit, m.mark.index)
	switch n := r.IntN(40); {
	case n == 0:
		return operation{reopen: true}
	case n < 3 && m.lastIndex() > m.mark.index:
		return operation{compact: m.mark.index + 1 + uint64(r.Int64N(int64(m.lastIndex()-m.mark.index)))}
	case n == 4:
		return operation{reset: mark{m.lastIndex() + uint64(r.IntN(5)) + 1, m.termOf(m.lastIndex()) + uint64(r.IntN(2))}}
	}
	b := Batch{Sync: r.IntN(3) > 0}
	last := m.lastIndex()
	if r.IntN(4) > 0 {
		first := last + 1
		term := m.termOf(last) + uint64(r.IntN(8)/7)
		if r.IntN(5) == 0 && last > commit {
			first = commit + 1 + uint64(r.Int64N(int64(last-commit)))
			term = m.termOf(last) + 1
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
		term := max(m.state.term, m.termOf(m.lastIndex())) + uint64(r.IntN(2))
		vote := uint64(1 + r.IntN(3))
		if term == m.state.term && m.state.vote != 0 {
			vote = m.state.vote
		}
		b.HardState = stateMessage(term, vote, commit+uint64(r.Int64N(int64(last-commit)+1)))
	}
	return operation{batch: b}
}

// randomOperations returns n random operations, and the models before the first and after each
// operation.
func randomOperations(seed uint64, n int) ([]operation, []model) {
	r := rand.New(rand.NewPCG(seed, 2))
	var (
		ops    []operation
		models = []model{{}}
	)
	for len(ops) < n {
		m := models[len(models)-1]
		o := m.randomOperation(r)
		ops = append(ops, o)
		models = append(models, m.applyOperation(o))
	}
	return ops, models
}

// readModel reads the whole content of a log into a model.
func readModel(t require.TestingT, l *Log) model {
	first, err := l.FirstIndex()
	require.NoError(t, err)
	last, err := l.LastIndex()
	require.NoError(t, err)
	term, err := l.Term(first - 1)
	require.NoError(t, err)
	m := model{mark: mark{first - 1, term}, state: hardStateOf(l.HardState())}
	for lo := first; lo <= last; {
		part, err := l.Entries(lo, last+1, noLimit)
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

// requireLog opens the log in a directory of a disk, requires that the content equals want, and closes
// the log.
func requireLog(t testing.TB, d *testenv.Disk, name string, o Options, want model) {
	t.Helper()
	l, err := Open(d, name, o)
	require.NoError(t, err)
	got := readModel(t, l)
	require.True(t, want.requireEqual(got), "want %v\ngot  %v", want, got)
	require.NoError(t, l.Close())
}

// image maps the names of the segments of a log to their bytes.
type image map[string][]byte

// imageOf reads the segments of the log in the directory named log.
func imageOf(t testing.TB, d *testenv.Disk) image {
	names, err := d.List("log")
	require.NoError(t, err)
	files := image{}
	for _, name := range names {
		if !strings.HasSuffix(name, Suffix) {
			continue
		}
		files[name], err = disk.ReadSmall(d, path.Join("log", name))
		require.NoError(t, err)
	}
	return files
}

// toDisk returns a new disk with the segments in the directory named log. The segments are not durable.
func (i image) toDisk(t require.TestingT) *testenv.Disk {
	d := testenv.NewDisk(1)
	require.NoError(t, d.MkdirAll("log"))
	for name, data := range i {
		f, err := d.Create(path.Join("log", name))
		require.NoError(t, err)
		_, err = f.WriteAt(data, 0)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	return d
}

func (i image) sortedNames() []string { return slices.Sorted(maps.Keys(i)) }

// damageRecord calls damage with the bytes of a record of the last segment, which damage can change.
// number is the number of the record.
func (i image) damageRecord(t *testing.T, number uint64, damage func(record []byte)) {
	names := i.sortedNames()
	name := names[len(names)-1]
	data := i[name]
	id, _ := parseFileName(name)
	for offset := int64(0); ; {
		h, ok := id.decodeHead(data[offset:offset+headSize], offset)
		require.True(t, ok, "no record %d", number)
		end := offset + headSize + int64(h.length)
		if h.number == number {
			damage(data[offset:end])
			return
		}
		offset = alignUp(end)
	}
}

// threeSegments returns a log of three small segments, all of whose batches are durable, and the models
// before the first and after each operation.
func threeSegments(t *testing.T) (image, []model) {
	d := testenv.NewDisk(1)
	l, err := Open(d, "log", Options{SegmentSize: 1500})
	require.NoError(t, err)
	models := []model{{}}
	for _, o := range []operation{
		{batch: Batch{HardState: stateMessage(1, 1, 0), Entries: newEntries(1, 3, 1, 150), Sync: true}},
		{batch: Batch{HardState: stateMessage(1, 1, 3), Entries: newEntries(4, 2, 1, 150), Sync: true}},
		{batch: Batch{Entries: newEntries(6, 4, 1, 150), Sync: true}},
		{compact: 2},
		{batch: Batch{HardState: stateMessage(2, 2, 5), Entries: newEntries(8, 3, 2, 100), Sync: true}},
		{batch: Batch{HardState: stateMessage(2, 2, 7), Entries: newEntries(11, 1, 2, 100), Sync: true}},
		{batch: Batch{Entries: newEntries(12, 1, 2, 100), Sync: true}},
	} {
		require.NoError(t, o.apply(l))
		models = append(models, models[len(models)-1].applyOperation(o))
	}
	require.NoError(t, l.Close())
	files := imageOf(t, d)
	require.Len(t, files, 3)
	return files, models
}

// unsyncedTail returns a log of one segment whose records 2 and 3 are durable and whose records 4 to 6
// are not, and the models of the log after each record.
func unsyncedTail(t *testing.T) (image, []model) {
	d := testenv.NewDisk(1)
	l, err := Open(d, "log", Options{SegmentSize: smallSegment})
	require.NoError(t, err)
	models := []model{{}, {}}
	for i := range uint64(5) {
		o := operation{batch: Batch{Entries: newEntries(1+4*i, 4, 1, 400), Sync: i < 2}}
		require.NoError(t, o.apply(l))
		models = append(models, models[len(models)-1].applyOperation(o))
	}
	files := imageOf(t, d)
	require.NoError(t, l.Close())
	return files, models
}
