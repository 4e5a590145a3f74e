package filelog

import (
	"math"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv"
)

// fullDisk returns a disk that had space for one and a half segments, a log on it that has accepted
// entries of one KiB until it rejected one because the disk was full, and the content of the log.
func fullDisk(t *testing.T) (*testenv.Disk, *Log, model) {
	d := testenv.NewDisk(1)
	d.SetSpace(smallSegment / 2 * 3)
	l := openLog(t, d, Options{SegmentSize: smallSegment})
	m := model{}
	for {
		o := appendKiB(m, 1)
		if err := o.apply(l); err != nil {
			require.ErrorIs(t, err, ErrNoSpace)
			require.ErrorIs(t, err, syscall.ENOSPC)
			return d, l, m
		}
		m = m.applyOperation(o)
	}
}

// appendKiB returns an operation that appends an entry of about one KiB.
func appendKiB(m model, term uint64) operation {
	return operation{batch: Batch{Entries: newEntries(m.lastIndex()+1, 1, term, 1000), Sync: true}}
}

// TestAppend_FillsSegmentUpToReserveOnFullDisk checks that a log that cannot allocate the next segment
// accepts entries until the reserved part of the active segment is reached, and still accepts hard
// states and compaction marks after that.
func TestAppend_FillsSegmentUpToReserveOnFullDisk(t *testing.T) {
	d, l, m := fullDisk(t)
	require.Greater(t, l.end.end, int64(smallSegment-reservedSize(smallSegment)-2000), "a part of the segment is not used")
	require.Less(t, l.FreeSpace(), int64(0))
	require.ErrorIs(t, l.Reserve(), ErrNoSpace)

	appendVotes := func(term uint64) (written uint64) {
		for ; ; written++ {
			if err := l.Append(Batch{HardState: stateMessage(term+written, 1, 3), Sync: true}); err != nil {
				require.ErrorIs(t, err, ErrNoSpace)
				return written
			}
		}
	}
	require.NoError(t, l.Compact(2))
	m = m.applyOperation(operation{compact: 2})
	n := appendVotes(2)
	require.Greater(t, n, uint64(10))
	m = m.applyOperation(operation{batch: Batch{HardState: stateMessage(1+n, 1, 3)}})
	require.True(t, m.requireEqual(readModel(t, l)))
	require.NoError(t, l.Close())

	// A new process can open the log while the disk is still full.
	l = openLog(t, d, Options{SegmentSize: smallSegment})
	require.True(t, m.requireEqual(readModel(t, l)))
	more := appendKiB(m, 2+n)
	require.ErrorIs(t, more.apply(l), ErrNoSpace)
	require.Zero(t, appendVotes(2+n))
	// The same process accepts writes again when the disk has space.
	d.SetSpace(-1)
	require.NoError(t, more.apply(l))
	m = m.applyOperation(more)
	require.Equal(t, int64(math.MaxInt64), l.FreeSpace())
	require.True(t, m.requireEqual(readModel(t, l)))
	require.NoError(t, l.Close())
}

// TestFreeSpace_ExcludesReserveOnFullDisk checks that an eighth of a segment is left when FreeSpace
// returns 0, for entries that should not be rejected.
func TestFreeSpace_ExcludesReserveOnFullDisk(t *testing.T) {
	d := testenv.NewDisk(1)
	d.SetSpace(smallSegment / 2 * 3)
	l := openLog(t, d, Options{SegmentSize: smallSegment})
	next := uint64(1)
	for ; l.FreeSpace() > 0; next++ {
		require.NoError(t, l.Append(Batch{Entries: newEntries(next, 1, 1, 1000), Sync: true}))
	}
	free := smallSegment - reservedSize(smallSegment) - l.end.end
	require.Greater(t, free, int64(smallSegment/requiredShare-reservedSize(smallSegment)-2000))
	require.NoError(t, l.Append(Batch{Entries: newEntries(next, 1, 1, int(free)-200), Sync: true}))
	require.NoError(t, l.Close())
}

func TestReset_UsesReservedSegmentOnFullDisk(t *testing.T) {
	d := testenv.NewDisk(1)
	l := openLog(t, d, Options{SegmentSize: smallSegment})
	require.NoError(t, l.Append(Batch{Entries: newEntries(1, 3, 1, 100), Sync: true}))
	require.NoError(t, l.Reserve())
	require.NoError(t, l.Reserve())
	d.SetSpace(0)
	require.NoError(t, l.Reset(10, 2))
	require.NoError(t, l.Append(Batch{Entries: newEntries(11, 1, 2, 100), Sync: true}))
	require.NoError(t, l.Close())
}

// TestOpen_SucceedsWithSealedSegmentOnFullDisk checks that Open succeeds if a crash has left the active
// segment without free space, as after sealing, and the disk has no space to allocate more for the segment.
func TestOpen_SucceedsWithSealedSegmentOnFullDisk(t *testing.T) {
	d := testenv.NewDisk(1)
	l := openLog(t, d, Options{SegmentSize: smallSegment})
	o := operation{batch: Batch{Entries: newEntries(1, 10, 1, 1000), Sync: true}}
	m := model{}.applyOperation(o)
	require.NoError(t, o.apply(l))
	require.NoError(t, l.active.file.Truncate(l.end.end))
	require.NoError(t, l.Close())
	d.SetSpace(0)
	l = openLog(t, d, Options{SegmentSize: smallSegment})
	more := appendKiB(m, 1)
	require.ErrorIs(t, more.apply(l), ErrNoSpace)
	require.ErrorIs(t, l.Append(Batch{HardState: stateMessage(1, 1, 0), Sync: true}), ErrNoSpace)
	d.SetSpace(-1)
	require.NoError(t, more.apply(l))
	require.True(t, m.applyOperation(more).requireEqual(readModel(t, l)))
	require.NoError(t, l.Close())
}

// TestOpen_FindsDurableEntriesAfterCrashOnFullDisk checks that Open finds everything that the log had acknowledged
// after a crash in any operation on a full disk.
func TestOpen_FindsDurableEntriesAfterCrashOnFullDisk(t *testing.T) {
	for at := 1; ; at++ {
		d, l, m := fullDisk(t)
		acked, last := m, m
		d.CrashAt(d.Ops() + at)
		crashed := false
		for i, o := range []operation{
			appendKiB(m, 1), // the log rejects these entries, because the disk is full
			{batch: Batch{HardState: stateMessage(2, 2, 3), Sync: true}},
			{compact: 3},
			appendKiB(m, 2), // the log accepts these entries, because the disk has space again
			{batch: Batch{Entries: newEntries(m.lastIndex()+2, 3, 2, 1000), Sync: true}},
		} {
			if i == 3 {
				d.SetSpace(-1)
			}
			err := o.apply(l)
			if i == 0 && err != nil && l.failure == nil {
				continue
			}
			last = acked.applyOperation(o)
			if err != nil {
				crashed = true
				break
			}
			acked = last
		}
		_ = l.Close()
		found := d.Crash()
		found.SetSpace(smallSegment * 3)
		l = openLog(t, found, Options{SegmentSize: smallSegment})
		got := readModel(t, l)
		require.True(t, acked.requireEqual(got) || last.requireEqual(got), "crash at operation %d", at)
		require.NoError(t, l.Close())
		if !crashed {
			return
		}
	}
}

// TestAppend_FailsPermanentlyAfterDiskErrorOnFullDisk checks that the log accepts no more writes after
// an error of the disk other than a full disk, even if the disk was full when the error occurred.
func TestAppend_FailsPermanentlyAfterDiskErrorOnFullDisk(t *testing.T) {
	d, l, m := fullDisk(t)
	o := appendKiB(m, 1)
	d.FailAt(d.Ops() + 3) // the operations are create, allocate and remove, and remove fails
	require.ErrorIs(t, o.apply(l), testenv.ErrIO)
	d.SetSpace(-1)
	err := o.apply(l)
	require.ErrorIs(t, err, testenv.ErrIO)
	require.NotErrorIs(t, err, ErrNoSpace)
	require.NoError(t, l.Close())
}
