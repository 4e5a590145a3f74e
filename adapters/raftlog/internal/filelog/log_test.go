package filelog

// What each operation does and refuses.

import (
	"bytes"
	"io/fs"
	"math/rand/v2"
	"path"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv/crashdisk"
)

func newDisk() *crashdisk.Disk { return crashdisk.New(rand.New(rand.NewPCG(1, 1))) }

func open(t *testing.T, d disk.FS, o Options) *Log {
	t.Helper()
	l, err := Open(d, "log", o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

func TestNewLogIsEmpty(t *testing.T) {
	l := open(t, newDisk(), Options{})
	first, err := l.FirstIndex()
	require.NoError(t, err)
	last, err := l.LastIndex()
	require.NoError(t, err)
	require.Equal(t, [2]uint64{1, 0}, [2]uint64{first, last})
	require.Nil(t, l.HardState())
	term, err := l.Term(0)
	require.NoError(t, err)
	require.Zero(t, term)
	_, err = l.Term(1)
	require.ErrorIs(t, err, raft.ErrUnavailable)
	got, err := l.Entries(1, 1, 0)
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestEntriesComeBackAsTheyWereGiven(t *testing.T) {
	for _, cache := range []int64{0, -1} {
		one := uint64(1)
		given := []*raftpb.Entry{
			{Index: proto.Uint64(1)},
			{Index: proto.Uint64(2), Term: &one, Data: []byte{}},
			{Index: proto.Uint64(3), Term: &one, Type: raftpb.EntryConfChangeV2.Enum(), Data: []byte("x")},
			{Index: proto.Uint64(4), Term: &one, Type: raftpb.EntryNormal.Enum()},
			{Index: proto.Uint64(5), Term: &one, Data: bytes.Repeat([]byte("big"), 100_000)},
		}
		l := open(t, newDisk(), Options{CacheSize: cache, SegmentSize: 1 << 16})
		require.NoError(t, l.Append(Batch{Entries: given}))
		got, err := l.Entries(1, 6, raftNoLimit)
		require.NoError(t, err)
		require.Len(t, got, 5)
		for i := range given {
			require.True(t, proto.Equal(given[i], got[i]), i)
			require.Equal(t, given[i].Data == nil, got[i].Data == nil)
			require.EqualValues(t, proto.Size(given[i]), encodedSize(given[i]))
		}
	}
}

func TestGuard(t *testing.T) {
	d := newDisk()
	l := open(t, d, Options{SegmentSize: 1 << 20})
	require.NoError(t, l.Append(Batch{HardState: hard(2, 1, 4), Entries: entries(1, 10, 1, 10), Sync: true}))
	require.ErrorIs(t, l.Append(Batch{Entries: entries(4, 3, 2, 10), Sync: true}), ErrTruncatesCommitted)
	l.Guard(6)
	l.Guard(5)
	require.ErrorIs(t, l.Append(Batch{Entries: entries(6, 3, 2, 10), Sync: true}), ErrTruncatesCommitted)

	// The same entries again change nothing, and forget nothing that is committed.
	require.NoError(t, l.Append(Batch{Entries: entries(2, 2, 1, 10), Sync: true}))
	last, _ := l.LastIndex()
	require.EqualValues(t, 10, last)
	require.NoError(t, l.Append(Batch{Entries: entries(5, 4, 1, 10), Sync: true}))
	last, _ = l.LastIndex()
	require.EqualValues(t, 8, last)

	require.NoError(t, l.Append(Batch{Entries: entries(7, 1, 2, 10), Sync: true}))
	term, err := l.Term(7)
	require.NoError(t, err)
	require.EqualValues(t, 2, term)
	require.ErrorIs(t, l.Reset(5, 1), ErrTruncatesCommitted)

	// What was compacted is left out; another history is not.
	require.NoError(t, l.Compact(5))
	require.NoError(t, l.Append(Batch{Entries: append(entries(3, 4, 1, 10), entries(7, 2, 2, 10)...), Sync: true}))
	last, _ = l.LastIndex()
	require.EqualValues(t, 8, last)
	require.NoError(t, l.Append(Batch{Entries: entries(2, 2, 1, 10), Sync: true}))
	require.ErrorIs(t, l.Append(Batch{Entries: entries(4, 4, 2, 10), Sync: true}), ErrTruncatesCommitted)
	require.NoError(t, l.Close())

	// The persisted commit index guards after a restart as well.
	l = open(t, d, Options{})
	require.ErrorIs(t, l.Append(Batch{Entries: entries(5, 3, 2, 10), Sync: true}), ErrTruncatesCommitted)
}

func TestRefusedInputChangesNothing(t *testing.T) {
	d := newDisk()
	l := open(t, d, Options{SegmentSize: 1 << 20})
	require.NoError(t, l.Append(Batch{HardState: hard(3, 1, 2), Entries: entries(1, 4, 3, 10), Sync: true}))
	ops := d.Ops()
	for what, b := range map[string]Batch{
		"gap":             {Entries: entries(6, 1, 3, 1)},
		"index 0":         {Entries: entries(0, 1, 3, 1)},
		"hole":            {Entries: append(entries(5, 1, 3, 1), entries(7, 1, 3, 1)...)},
		"falling term":    {Entries: entries(5, 1, 2, 1)},
		"term inside":     {Entries: append(entries(5, 1, 4, 1), entries(6, 1, 3, 1)...)},
		"term of state":   {HardState: hard(2, 1, 2)},
		"second vote":     {HardState: hard(3, 2, 2)},
		"commit too high": {HardState: hard(3, 1, 5)},
		"type":            {Entries: []*raftpb.Entry{{Index: proto.Uint64(5), Term: proto.Uint64(3), Type: raftpb.EntryType(300).Enum()}}},
	} {
		require.ErrorIs(t, l.Append(b), ErrInvalid, what)
	}
	require.ErrorIs(t, l.Compact(5), ErrInvalid)
	require.Equal(t, ops, d.Ops())
	_, err := Open(d, "other", Options{SegmentSize: 1 << 40})
	require.ErrorIs(t, err, ErrInvalid)
	require.NoError(t, l.Append(Batch{HardState: hard(3, 1, 0), Sync: true}))
	require.EqualValues(t, 2, l.HardState().GetCommit(), "the commit index is not lowered")
}

func TestOneWriteAndOneSyncForABatch(t *testing.T) {
	d := newDisk()
	l := open(t, d, Options{SegmentSize: 1 << 20})
	ops := d.Ops()
	require.NoError(t, l.Append(Batch{HardState: hard(1, 1, 0), Entries: entries(1, 1000, 1, 256), Sync: true}))
	require.Equal(t, 2, d.Ops()-ops)
	require.NoError(t, l.Append(Batch{Entries: entries(1001, 10, 1, 256)}))
	require.Equal(t, 3, d.Ops()-ops)
	require.NoError(t, l.Append(Batch{Sync: true}))
	require.Equal(t, 4, d.Ops()-ops)
	require.NoError(t, l.Append(Batch{Sync: true}))
	require.Equal(t, 4, d.Ops()-ops, "all is durable already")
}

func TestResetMovesFilesAside(t *testing.T) {
	d := newDisk()
	l := open(t, d, Options{SegmentSize: 2000})
	for i := range uint64(6) {
		require.NoError(t, l.Append(Batch{HardState: hard(1, 7, i), Entries: entries(1+3*i, 3, 1, 200), Sync: true}))
	}
	before := l.Segments()
	require.Greater(t, len(before), 2)
	require.NoError(t, l.Reset(100, 5))
	require.Len(t, l.Segments(), 1)
	require.EqualValues(t, 100, l.HardState().GetCommit())
	require.EqualValues(t, 7, l.HardState().GetVote())
	term, err := l.Term(100)
	require.NoError(t, err)
	require.EqualValues(t, 5, term)
	_, err = l.Entries(100, 101, 1)
	require.ErrorIs(t, err, raft.ErrCompacted)
	require.NoError(t, l.Append(Batch{Entries: entries(101, 3, 5, 10), Sync: true}))
	names, err := d.List("log")
	require.NoError(t, err)
	var aside string
	for _, n := range names {
		if strings.HasPrefix(n, oldPrefix) {
			aside = n
		}
	}
	moved, err := d.List(path.Join("log", aside))
	require.NoError(t, err)
	require.Len(t, moved, len(before))
	require.NoError(t, l.Close())
	l = open(t, d, Options{SegmentSize: 2000})
	require.Len(t, read(t, l).entries, 3)
}

func TestPrunableFilesMayBeDeleted(t *testing.T) {
	d := newDisk()
	l := open(t, d, Options{SegmentSize: 2000})
	var m model
	do := func(o op) {
		require.NoError(t, o.do(l))
		m = m.after(o)
	}
	for i := range uint64(10) {
		do(op{batch: Batch{HardState: hard(1, 7, i), Entries: entries(1+3*i, 3, 1, 200), Sync: true}})
	}
	do(op{batch: Batch{Entries: entries(20, 8, 2, 200), Sync: true}}) // replaces in older files
	require.Empty(t, l.Prunable(25), "nothing is compacted")
	do(op{compact: 22})
	do(op{batch: Batch{Entries: entries(28, 3, 2, 300), Sync: true}})
	segs := l.Segments()
	for through := range uint64(30) {
		for i, name := range l.Prunable(through) {
			require.Equal(t, segs[i].Name, name)
			if segs[i].Last >= segs[i].First {
				require.LessOrEqual(t, segs[i].Last, min(through, 22))
			}
			require.True(t, segs[i].Sealed)
		}
	}
	names := l.Prunable(30)
	require.Greater(t, len(names), 3)
	require.NoError(t, l.Close())
	for _, name := range names {
		require.NoError(t, d.Remove(name))
		l, err := Open(d, "log", Options{SegmentSize: 2000})
		require.NoError(t, err)
		require.True(t, m.equal(read(t, l)))
		require.NoError(t, l.Close())
	}
	// One too many.
	require.NoError(t, d.Remove(segs[len(names)].Name))
	_, err := Open(d, "log", Options{})
	require.ErrorIs(t, err, ErrCorrupt)
}

func TestFullDisk(t *testing.T) {
	d := newDisk()
	l := open(t, d, Options{SegmentSize: 4096})
	d.SetSpace(6000)
	var err error
	next := uint64(1)
	for ; err == nil; next++ {
		err = l.Append(Batch{Entries: entries(next, 1, 1, 400), Sync: true})
	}
	next--
	require.ErrorIs(t, err, ErrNoSpace)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Greater(t, next, uint64(5))
	// Hard states find room for a while.
	require.NoError(t, l.Append(Batch{HardState: hard(5, 3, 2), Sync: true}))
	require.ErrorIs(t, l.Append(Batch{Entries: entries(next, 1, 5, 400), Sync: true}), ErrNoSpace)
	d.SetSpace(-1)
	for range 20 {
		require.NoError(t, l.Append(Batch{Entries: entries(next, 1, 5, 400), Sync: true}))
		next++
	}
	require.NoError(t, l.Close())
	l = open(t, d, Options{SegmentSize: 4096})
	require.Len(t, read(t, l).entries, int(next)-1)
}

func TestLogIsLocked(t *testing.T) {
	for name, d := range map[string]disk.FS{"crashdisk": newDisk(), "os": disk.OS(t.TempDir())} {
		t.Run(name, func(t *testing.T) {
			l := open(t, d, Options{SegmentSize: 1 << 16})
			_, err := Open(d, "log", Options{})
			require.ErrorIs(t, err, disk.ErrLocked)
			require.NoError(t, l.Append(Batch{Entries: entries(1, 3, 1, 10)}))
			r, err := Open(d, "log", Options{ReadOnly: true})
			require.NoError(t, err)
			require.Len(t, read(t, r).entries, 3)
			require.ErrorIs(t, r.Append(Batch{}), ErrReadOnly)
			require.ErrorIs(t, r.Compact(1), ErrReadOnly)
			require.NoError(t, r.Close())
			require.NoError(t, l.Close())
			require.NoError(t, l.Close())
			_, err = l.LastIndex()
			require.ErrorIs(t, err, ErrClosed)
			_, err = l.Term(1)
			require.ErrorIs(t, err, ErrClosed)
			_, err = l.Entries(1, 2, 1)
			require.ErrorIs(t, err, ErrClosed)
			require.Len(t, read(t, open(t, d, Options{})).entries, 3)
		})
	}
	_, err := Open(newDisk(), "none", Options{ReadOnly: true})
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestScan(t *testing.T) {
	files, _ := threeSegments(t)
	d := files.disk(t)
	count := map[RecordKind]int{}
	var indexes []uint64
	list := func() error {
		clear(count)
		indexes = nil
		return Scan(d, "log", func(r Record) error {
			count[r.Kind]++
			if r.Kind == KindEntry {
				indexes = append(indexes, r.Index)
				require.Equal(t, r.Size, len(r.Data))
				require.True(t, strings.HasSuffix(string(r.Data), string(rune('0'+r.Index%10))))
				raw := files[r.File][r.Offset:]
				require.Equal(t, r.Data, raw[entrySize:entrySize+r.Size])
			}
			return nil
		})
	}
	ops := d.Ops()
	require.NoError(t, list())
	require.Equal(t, ops, d.Ops(), "nothing is changed")
	require.Equal(t, map[RecordKind]int{KindSegment: 3, KindEntry: 14, KindHardState: 4, KindMark: 1}, count)
	require.Equal(t, []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 8, 9, 10, 11, 12}, indexes)

	names := sortedNames(files)
	files[names[2]][300] ^= 1 // the end, for all that a reader knows
	d = files.disk(t)
	require.NoError(t, list())
	require.Less(t, len(indexes), 14)
	files[names[0]][300] ^= 1
	d = files.disk(t)
	require.ErrorIs(t, list(), ErrCorrupt)
	require.ErrorIs(t, Scan(newDisk(), ".", nil), fs.ErrNotExist)
}

// Readers go on while one appends, replaces, compacts and resets; with -race.
func TestReadersBesideTheAppender(t *testing.T) {
	d := disk.OS(t.TempDir())
	l := open(t, d, Options{SegmentSize: 1 << 14, CacheSize: 2000})
	done := make(chan struct{})
	var readers sync.WaitGroup
	for seed := range uint64(3) {
		readers.Go(func() {
			r := rand.New(rand.NewPCG(seed, 9))
			for {
				select {
				case <-done:
					return
				default:
				}
				first, _ := l.FirstIndex()
				last, _ := l.LastIndex()
				if last < first {
					continue
				}
				lo := first + uint64(r.Int64N(int64(last-first)+1))
				got, err := l.Entries(lo, last+1, uint64(r.IntN(5000)))
				if err != nil && err != raft.ErrCompacted && err != raft.ErrUnavailable {
					t.Errorf("entries from %d: %v", lo, err)
					return
				}
				for i, e := range got {
					// An entry's data tell its index.
					if e.GetIndex() != lo+uint64(i) || !bytes.HasSuffix(e.Data, []byte{byte(e.GetIndex())}) {
						t.Errorf("entry %d at %d", e.GetIndex(), lo+uint64(i))
					}
					if i > 0 && e.GetTerm() < got[i-1].GetTerm() {
						t.Errorf("entries of several times: %d has term %d after %d", e.GetIndex(), e.GetTerm(), got[i-1].GetTerm())
					}
				}
				_, _ = l.Term(lo)
				l.HardState()
				l.Segments()
				l.Prunable(lo)
			}
		})
	}
	var m model
	r := rand.New(rand.NewPCG(7, 7))
	for range 1000 {
		o := m.random(r, false)
		o.batch.Sync = false
		for _, e := range o.batch.Entries {
			e.Data = append(e.Data, byte(e.GetIndex()))
		}
		if o.reopen {
			continue
		}
		require.NoError(t, o.do(l))
		m = m.after(o)
	}
	close(done)
	readers.Wait()
	require.True(t, m.equal(read(t, l)))
}
