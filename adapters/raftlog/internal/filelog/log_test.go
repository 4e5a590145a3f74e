package filelog

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv"
)

func TestLog_IsEmptyWhenNew(t *testing.T) {
	l := openLog(t, testenv.NewDisk(1), Options{})
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

// TestLog_EntriesAreRestoredExactly checks that reading an entry, from the disk or from the cache, returns
// nil fields as nil and zero values as zero.
func TestLog_EntriesAreRestoredExactly(t *testing.T) {
	for _, cache := range []int64{0, -1} {
		one := uint64(1)
		given := []*raftpb.Entry{
			{Index: proto.Uint64(1)},
			{Index: proto.Uint64(2), Term: &one, Data: []byte{}},
			{Index: proto.Uint64(3), Term: &one, Type: raftpb.EntryConfChangeV2.Enum(), Data: []byte("x")},
			{Index: proto.Uint64(4), Term: &one, Type: raftpb.EntryNormal.Enum()},
			{Index: proto.Uint64(5), Term: &one, Data: bytes.Repeat([]byte("big"), 100_000)},
		}
		l := openLog(t, testenv.NewDisk(1), Options{CacheSize: cache, SegmentSize: smallSegment})
		require.NoError(t, l.Append(Batch{Entries: given}))
		got, err := l.Entries(1, 6, noLimit)
		require.NoError(t, err)
		require.Len(t, got, 5)
		for i := range given {
			require.True(t, proto.Equal(given[i], got[i]), i)
			require.Equal(t, given[i].Data == nil, got[i].Data == nil)
			require.EqualValues(t, proto.Size(given[i]), encodedSize(given[i]))
		}
	}
}

// TestLog_MatchesModelAfterRandomOperations checks that, after each of many random operations, a log
// contains the same entries and the same hard state as a model in memory.
func TestLog_MatchesModelAfterRandomOperations(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			fs := testenv.NewDisk(seed)
			o := Options{SegmentSize: 4096 << (seed % 3), CacheSize: []int64{-1, 3000, 0}[seed%3]}
			l, err := Open(fs, "data/log", o)
			require.NoError(t, err)
			defer func() { require.NoError(t, l.Close()) }()
			var m model
			for i := range 400 {
				next := m.randomOperation(r)
				if next.reopen {
					require.NoError(t, l.Close())
					l, err = Open(fs, "data/log", o)
					require.NoError(t, err)
				} else {
					require.NoError(t, next.apply(l), "step %d", i)
				}
				m = m.applyOperation(next)
				if i%5 == 0 || next.reopen {
					got := readModel(t, l)
					require.True(t, m.requireEqual(got), "step %d (%+v):\nwant %v\ngot  %v", i, next, m, got)
				}
				compareRange(t, r, l, m)
			}
		})
	}
}

// compareRange compares what the log and the model return for a random range of entries.
func compareRange(t *testing.T, r *rand.Rand, l *Log, m model) {
	lo := uint64(r.Int64N(int64(m.lastIndex() + 3)))
	hi := lo + uint64(r.IntN(10))
	limit := uint64(r.IntN(1000))
	got, err := l.Entries(lo, hi, limit)
	_, termErr := l.Term(lo)
	switch {
	case lo < m.mark.index:
		require.ErrorIs(t, termErr, raft.ErrCompacted)
	case lo > m.lastIndex():
		require.ErrorIs(t, termErr, raft.ErrUnavailable)
	default:
		require.NoError(t, termErr)
	}
	switch {
	case lo <= m.mark.index:
		require.ErrorIs(t, err, raft.ErrCompacted)
		return
	case hi > m.lastIndex()+1:
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

// TestLog_ConcurrentReadersSeeConsistentEntries checks that readers see consistent entries while another
// goroutine appends, replaces, compacts and resets. With the race detector, it also checks that the goroutines
// share no data without a lock.
func TestLog_ConcurrentReadersSeeConsistentEntries(t *testing.T) {
	l := openLog(t, disk.OS(t.TempDir()), Options{SegmentSize: 1 << 14, CacheSize: 2000})
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
					// The writer appends the last byte of its index to the data of each entry, so that the
					// reader can check it.
					if e.GetIndex() != lo+uint64(i) || !bytes.HasSuffix(e.Data, []byte{byte(e.GetIndex())}) {
						t.Errorf("entry %d at %d", e.GetIndex(), lo+uint64(i))
					}
					if i > 0 && e.GetTerm() < got[i-1].GetTerm() {
						t.Errorf("entries of different states: %d has term %d after %d", e.GetIndex(), e.GetTerm(), got[i-1].GetTerm())
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
		o := m.randomOperation(r)
		o.batch.Sync = false
		for _, e := range o.batch.Entries {
			e.Data = append(e.Data, byte(e.GetIndex()))
		}
		if o.reopen {
			continue
		}
		require.NoError(t, o.apply(l))
		m = m.applyOperation(o)
	}
	close(done)
	readers.Wait()
	require.True(t, m.requireEqual(readModel(t, l)))
}

// TestEntries_DetectsBitFlippedWhileLogIsOpen checks that reading an entry returns an error if a bit of
// the entry has changed on the disk since the log was opened.
func TestEntries_DetectsBitFlippedWhileLogIsOpen(t *testing.T) {
	files, models := threeSegments(t)
	want := models[len(models)-1]
	d := files.toDisk(t)
	l, err := Open(d, "log", Options{SegmentSize: 1500, CacheSize: -1})
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	detected := 0
	for _, s := range l.Segments() {
		f, err := d.Open(s.Name)
		require.NoError(t, err)
		for i := range s.Size {
			var b [1]byte
			_, err := f.ReadAt(b[:], i)
			require.NoError(t, err)
			_, err = f.WriteAt([]byte{b[0] ^ 4}, i)
			require.NoError(t, err)
			for index := uint64(3); index <= want.lastIndex(); index++ {
				got, err := l.Entries(index, index+1, noLimit)
				if err != nil {
					require.ErrorIs(t, err, ErrCorrupt)
					detected++
					continue
				}
				require.Equal(t, want.entries[index-3].String(), got[0].String())
			}
			_, err = f.WriteAt(b[:], i)
			require.NoError(t, err)
		}
		require.NoError(t, f.Close())
	}
	require.Positive(t, detected)
}
