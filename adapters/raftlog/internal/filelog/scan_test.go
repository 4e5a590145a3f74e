package filelog

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv"
)

func TestScan_VisitsAllElements(t *testing.T) {
	files, _ := threeSegments(t)
	d := files.toDisk(t)
	count := map[RecordKind]int{}
	var indexes []uint64
	scan := func() error {
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
	require.NoError(t, scan())
	require.Equal(t, ops, d.Ops(), "the log was changed")
	require.Equal(t, map[RecordKind]int{KindSegment: 3, KindEntry: 14, KindHardState: 4, KindMark: 1}, count)
	require.Equal(t, []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 8, 9, 10, 11, 12}, indexes)

	names := files.sortedNames()
	files[names[2]][300] ^= 1 // damage the first record of the last segment, which then looks like a torn tail
	d = files.toDisk(t)
	require.NoError(t, scan())
	require.Less(t, len(indexes), 14)
	files[names[0]][300] ^= 1
	d = files.toDisk(t)
	require.ErrorIs(t, scan(), ErrCorrupt)
	require.ErrorIs(t, Scan(testenv.NewDisk(1), ".", nil), fs.ErrNotExist)
}

// TestScan_IgnoresRecordsAppendedDuringScan checks that Scan does not take records for damage that another process
// appends after Scan has reached the end of the last segment.
func TestScan_IgnoresRecordsAppendedDuringScan(t *testing.T) {
	d := testenv.NewDisk(1)
	l := openLog(t, d, Options{SegmentSize: smallSegment})
	next := uint64(1)
	grow := func() {
		for range 3 {
			require.NoError(t, l.Append(Batch{Entries: newEntries(next, 4, 1, 400), Sync: true}))
			next += 4
		}
	}
	grow()
	last := uint64(0)
	require.NoError(t, Scan(d, "log", func(r Record) error {
		if last = r.Index; last == 12 {
			grow()
		}
		return nil
	}))
	require.EqualValues(t, 12, last, "the segment was read after it has grown")
}

// TestHistory_MatchesModelWhileLogIsUsed checks that History visits the same entries as a model
// contains, after operations of every kind and while the log is open.
func TestHistory_MatchesModelWhileLogIsUsed(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			d := testenv.NewDisk(seed)
			l := openLog(t, d, Options{SegmentSize: 4096 << (seed % 3)})
			var m model
			for i := range 200 {
				next := m.randomOperation(r)
				if next.reopen {
					continue
				}
				require.NoError(t, next.apply(l), "step %d", i)
				if m = m.applyOperation(next); i%5 == 0 {
					requireHistory(t, d, m)
				}
			}
		})
	}
}

func requireHistory(t *testing.T, d *testenv.Disk, m model) {
	t.Helper()
	next := uint64(0)
	var got []*raftpb.Entry
	extent, err := History(d, "log", func(r Record, committed bool) error {
		if next != 0 && r.Index != next {
			return fmt.Errorf("entry %d, not %d", r.Index, next)
		}
		next = r.Index + 1
		if committed != (r.Index <= m.state.commit) {
			return fmt.Errorf("entry %d: committed is %t, through %d", r.Index, committed, m.state.commit)
		}
		if r.Index > m.mark.index {
			got = append(got, &raftpb.Entry{Index: &r.Index, Term: &r.Term, Data: r.Data})
		}
		return nil
	})
	require.NoError(t, err)
	require.Len(t, got, len(m.entries))
	for i, e := range m.entries {
		require.Equal(t, e.GetIndex(), got[i].GetIndex())
		require.Equal(t, e.GetTerm(), got[i].GetTerm())
		require.Equal(t, string(e.GetData()), string(got[i].GetData()))
	}
	require.Equal(t, m.mark.index, extent.Mark)
	require.Equal(t, max(m.state.commit, m.mark.index), extent.Commit)
	if len(got) > 0 {
		require.Equal(t, m.lastIndex(), extent.Last)
	}
}

// TestHistory_StopsAtErrorOfVisit checks that History does not call visit again after visit has
// returned an error, and returns that error.
func TestHistory_StopsAtErrorOfVisit(t *testing.T) {
	d := testenv.NewDisk(1)
	l := openLog(t, d, Options{SegmentSize: 4096})
	require.NoError(t, l.Append(Batch{HardState: stateMessage(1, 1, 2), Entries: newEntries(1, 4, 1, 10), Sync: true}))
	stop := errors.New("stop")
	for at := range uint64(4) {
		n := uint64(0)
		_, err := History(d, "log", func(Record, bool) error {
			if n++; n > at {
				return stop
			}
			return nil
		})
		require.ErrorIs(t, err, stop)
		require.Equal(t, at+1, n)
	}
}
