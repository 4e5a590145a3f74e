package filelog

import (
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv"
)

func TestReset_MovesReplacedFilesToOldDirectory(t *testing.T) {
	d := testenv.NewDisk(1)
	l := openLog(t, d, Options{SegmentSize: 2000})
	for i := range uint64(6) {
		require.NoError(t, l.Append(Batch{HardState: stateMessage(1, 7, i), Entries: newEntries(1+3*i, 3, 1, 200), Sync: true}))
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
	require.NoError(t, l.Append(Batch{Entries: newEntries(101, 3, 5, 10), Sync: true}))
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
	l = openLog(t, d, Options{SegmentSize: 2000})
	require.Len(t, readModel(t, l).entries, 3)
}

// TestPrunable_ReturnsFilesThatCanBeDeleted checks that Open succeeds without the files that Prunable
// returns, and fails if the next file is missing.
func TestPrunable_ReturnsFilesThatCanBeDeleted(t *testing.T) {
	d := testenv.NewDisk(1)
	l := openLog(t, d, Options{SegmentSize: 2000})
	var m model
	apply := func(o operation) {
		require.NoError(t, o.apply(l))
		m = m.applyOperation(o)
	}
	for i := range uint64(10) {
		apply(operation{batch: Batch{HardState: stateMessage(1, 7, i), Entries: newEntries(1+3*i, 3, 1, 200), Sync: true}})
	}
	// Replace entries of earlier segments, so that these segments contain entries that are not valid any more.
	apply(operation{batch: Batch{Entries: newEntries(20, 8, 2, 200), Sync: true}})
	require.Empty(t, l.Prunable(25), "no entry is compacted")
	apply(operation{compact: 22})
	apply(operation{batch: Batch{Entries: newEntries(28, 3, 2, 300), Sync: true}})
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
		require.True(t, m.requireEqual(readModel(t, l)))
		require.NoError(t, l.Close())
	}
	require.NoError(t, d.Remove(segs[len(names)].Name))
	_, err := Open(d, "log", Options{})
	require.ErrorIs(t, err, ErrCorrupt, "a file that is not prunable was deleted")
}
