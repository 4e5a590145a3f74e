package filelog

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv/crashdisk"
)

const smallSegment = 64 << 10

// filled is a log on a disk with space for one segment and a half, that has taken entries of one
// KiB until it refused one.
func filled(t *testing.T) (*crashdisk.Disk, *Log, model) {
	d := newDisk()
	d.SetSpace(smallSegment / 2 * 3)
	l := open(t, d, Options{SegmentSize: smallSegment})
	m := model{}
	for {
		o := op{batch: Batch{Entries: entries(m.last()+1, 1, 1, 1000), Sync: true}}
		err := o.do(l)
		if err != nil {
			require.ErrorIs(t, err, ErrNoSpace)
			return d, l, m
		}
		m = m.after(o)
	}
}

// TestSegmentIsFilledOnAFullDisk: without space for the next segment the present one is filled, but
// for what hard states and marks need.
func TestSegmentIsFilledOnAFullDisk(t *testing.T) {
	d, l, m := filled(t)
	require.Greater(t, l.at.end, int64(smallSegment-kept(smallSegment)-2000), "nearly all is used")
	require.Less(t, l.Room(), int64(0))
	require.ErrorIs(t, l.Reserve(), ErrNoSpace)

	votes := func(term uint64) (written uint64) {
		for ; ; written++ {
			if err := l.Append(Batch{HardState: hard(term+written, 1, 3), Sync: true}); err != nil {
				require.ErrorIs(t, err, ErrNoSpace)
				return written
			}
		}
	}
	require.NoError(t, l.Compact(2))
	m = m.after(op{compact: 2})
	n := votes(2)
	require.Greater(t, n, uint64(10))
	m = m.after(op{batch: Batch{HardState: hard(1+n, 1, 3)}})
	require.True(t, m.equal(read(t, l)))
	require.NoError(t, l.Close())

	// A process that starts on the full disk finds all of it.
	l = open(t, d, Options{SegmentSize: smallSegment})
	require.True(t, m.equal(read(t, l)))
	more := op{batch: Batch{Entries: entries(m.last()+1, 1, 2+n, 1000), Sync: true}}
	require.ErrorIs(t, more.do(l), ErrNoSpace)
	require.Zero(t, votes(2+n))
	// And no other process is needed when there is space.
	d.SetSpace(-1)
	require.NoError(t, more.do(l))
	m = m.after(more)
	require.Equal(t, int64(math.MaxInt64), l.Room())
	require.True(t, m.equal(read(t, l)))
	require.NoError(t, l.Close())
}

// TestRoomIsKnownBeforeItEnds: what can be refused is refused while there is an eighth of a segment
// for what cannot.
func TestRoomIsKnownBeforeItEnds(t *testing.T) {
	d := newDisk()
	d.SetSpace(smallSegment / 2 * 3)
	l := open(t, d, Options{SegmentSize: smallSegment})
	next := uint64(1)
	for ; l.Room() > 0; next++ {
		require.NoError(t, l.Append(Batch{Entries: entries(next, 1, 1, 1000), Sync: true}))
	}
	free := smallSegment - kept(smallSegment) - l.at.end
	require.Greater(t, free, int64(smallSegment/spareShare-kept(smallSegment)-2000))
	require.NoError(t, l.Append(Batch{Entries: entries(next, 1, 1, int(free)-200), Sync: true}))
	require.NoError(t, l.Close())
}

// TestReservedSegmentIsThere: a Reset that has reserved its space does not need the disk to have
// any.
func TestReservedSegmentIsThere(t *testing.T) {
	d := newDisk()
	l := open(t, d, Options{SegmentSize: smallSegment})
	require.NoError(t, l.Append(Batch{Entries: entries(1, 3, 1, 100), Sync: true}))
	require.NoError(t, l.Reserve())
	require.NoError(t, l.Reserve())
	d.SetSpace(0)
	require.NoError(t, l.Reset(10, 2))
	require.NoError(t, l.Append(Batch{Entries: entries(11, 1, 2, 100), Sync: true}))
	require.NoError(t, l.Close())
}

// TestSealedSegmentOnAFullDisk: a crash has left the active segment as long as what is written, and
// there is no space to allocate the rest again.
func TestSealedSegmentOnAFullDisk(t *testing.T) {
	d := newDisk()
	l := open(t, d, Options{SegmentSize: smallSegment})
	m := model{}.after(op{batch: Batch{Entries: entries(1, 10, 1, 1000), Sync: true}})
	require.NoError(t, l.Append(Batch{Entries: entries(1, 10, 1, 1000), Sync: true}))
	require.NoError(t, l.active.file.Truncate(l.at.end))
	require.NoError(t, l.Close())
	d.SetSpace(0)
	l = open(t, d, Options{SegmentSize: smallSegment})
	more := op{batch: Batch{Entries: entries(11, 1, 1, 1000), Sync: true}}
	require.ErrorIs(t, more.do(l), ErrNoSpace)
	require.ErrorIs(t, l.Append(Batch{HardState: hard(1, 1, 0), Sync: true}), ErrNoSpace)
	d.SetSpace(-1)
	require.NoError(t, more.do(l))
	require.True(t, m.after(more).equal(read(t, l)))
	require.NoError(t, l.Close())
}

// TestCrashOnAFullDisk: the power fails at any operation, on a disk that is full and gets space
// later. Segments are small, so that all disks together have some megabytes.
func TestCrashOnAFullDisk(t *testing.T) {
	for at := 1; ; at++ {
		d, l, m := filled(t)
		var acked, last model
		acked, last = m, m
		d.CrashAt(d.Ops() + at)
		crashed := false
		for i, o := range []op{
			{batch: Batch{Entries: entries(m.last()+1, 1, 1, 1000), Sync: true}}, // refused
			{batch: Batch{HardState: hard(2, 2, 3), Sync: true}},
			{compact: 3},
			{batch: Batch{Entries: entries(m.last()+1, 1, 2, 1000), Sync: true}}, // there is space
			{batch: Batch{Entries: entries(m.last()+2, 3, 2, 1000), Sync: true}},
		} {
			if i == 3 {
				d.SetSpace(-1)
			}
			err := o.do(l)
			if i == 0 && err != nil && !crashed {
				if l.err == nil {
					continue
				}
			}
			last = acked.after(o)
			if err != nil {
				crashed = true
				break
			}
			acked = last
		}
		_ = l.Close()
		found := d.Crash()
		found.SetSpace(smallSegment * 3)
		l = open(t, found, Options{SegmentSize: smallSegment})
		got := read(t, l)
		require.True(t, acked.equal(got) || last.equal(got), "crash at operation %d", at)
		require.NoError(t, l.Close())
		if !crashed {
			return
		}
	}
}

// TestFullDiskThatFails: an error of the disk is the end of the log, also while the disk is full.
func TestFullDiskThatFails(t *testing.T) {
	d, l, m := filled(t)
	o := op{batch: Batch{Entries: entries(m.last()+1, 1, 1, 1000), Sync: true}}
	d.FailAt(d.Ops() + 3) // create, allocate, remove
	require.ErrorIs(t, o.do(l), crashdisk.ErrIO)
	d.SetSpace(-1)
	err := o.do(l)
	require.ErrorIs(t, err, crashdisk.ErrIO)
	require.NotErrorIs(t, err, ErrNoSpace)
	require.NoError(t, l.Close())
}
