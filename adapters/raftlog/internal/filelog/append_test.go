package filelog

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv"
)

// TestAppend_ProtectsCommittedEntries checks that Append does not replace a committed, guarded or compacted
// entry by an entry of another term.
func TestAppend_ProtectsCommittedEntries(t *testing.T) {
	d := testenv.NewDisk(1)
	l := openLog(t, d, Options{SegmentSize: 1 << 20})
	require.NoError(t, l.Append(Batch{HardState: stateMessage(2, 1, 4), Entries: newEntries(1, 10, 1, 10), Sync: true}))
	require.ErrorIs(t, l.Append(Batch{Entries: newEntries(4, 3, 2, 10), Sync: true}), ErrTruncatesCommitted)
	l.Guard(6)
	l.Guard(5)
	require.ErrorIs(t, l.Append(Batch{Entries: newEntries(6, 3, 2, 10), Sync: true}), ErrTruncatesCommitted)

	// Appending entries that the log contains does not remove the committed entries after them.
	require.NoError(t, l.Append(Batch{Entries: newEntries(2, 2, 1, 10), Sync: true}))
	last, _ := l.LastIndex()
	require.EqualValues(t, 10, last)
	require.NoError(t, l.Append(Batch{Entries: newEntries(5, 4, 1, 10), Sync: true}))
	last, _ = l.LastIndex()
	require.EqualValues(t, 8, last)

	require.NoError(t, l.Append(Batch{Entries: newEntries(7, 1, 2, 10), Sync: true}))
	term, err := l.Term(7)
	require.NoError(t, err)
	require.EqualValues(t, 2, term)
	require.ErrorIs(t, l.Reset(5, 1), ErrTruncatesCommitted)

	// Append ignores compacted entries, unless their terms differ from those in the log.
	require.NoError(t, l.Compact(5))
	require.NoError(t, l.Append(Batch{Entries: append(newEntries(3, 4, 1, 10), newEntries(7, 2, 2, 10)...), Sync: true}))
	last, _ = l.LastIndex()
	require.EqualValues(t, 8, last)
	require.NoError(t, l.Append(Batch{Entries: newEntries(2, 2, 1, 10), Sync: true}))
	require.ErrorIs(t, l.Append(Batch{Entries: newEntries(4, 4, 2, 10), Sync: true}), ErrTruncatesCommitted)
	require.NoError(t, l.Close())

	// The log protects entries up to the commit index on disk after a restart, too.
	l = openLog(t, d, Options{})
	require.ErrorIs(t, l.Append(Batch{Entries: newEntries(5, 3, 2, 10), Sync: true}), ErrTruncatesCommitted)
}

func TestAppend_InvalidBatchChangesNothing(t *testing.T) {
	d := testenv.NewDisk(1)
	l := openLog(t, d, Options{SegmentSize: 1 << 20})
	require.NoError(t, l.Append(Batch{HardState: stateMessage(3, 1, 2), Entries: newEntries(1, 4, 3, 10), Sync: true}))
	ops := d.Ops()
	for name, b := range map[string]Batch{
		"gap after the last entry":  {Entries: newEntries(6, 1, 3, 1)},
		"index 0":                   {Entries: newEntries(0, 1, 3, 1)},
		"gap between entries":       {Entries: append(newEntries(5, 1, 3, 1), newEntries(7, 1, 3, 1)...)},
		"term decreases":            {Entries: newEntries(5, 1, 2, 1)},
		"term decreases in batch":   {Entries: append(newEntries(5, 1, 4, 1), newEntries(6, 1, 3, 1)...)},
		"term of state decreases":   {HardState: stateMessage(2, 1, 2)},
		"second vote in the term":   {HardState: stateMessage(3, 2, 2)},
		"commit beyond last entry":  {HardState: stateMessage(3, 1, 5)},
		"type that does not fit in": {Entries: []*raftpb.Entry{{Index: proto.Uint64(5), Term: proto.Uint64(3), Type: raftpb.EntryType(300).Enum()}}},
	} {
		require.ErrorIs(t, l.Append(b), ErrInvalid, name)
	}
	require.ErrorIs(t, l.Compact(5), ErrInvalid)
	require.Equal(t, ops, d.Ops())
	_, err := Open(d, "other", Options{SegmentSize: 1 << 40})
	require.ErrorIs(t, err, ErrInvalid)
	require.NoError(t, l.Append(Batch{HardState: stateMessage(3, 1, 0), Sync: true}))
	require.EqualValues(t, 2, l.HardState().GetCommit(), "the commit index has decreased")
}

func TestAppend_WritesAndSyncsOncePerBatch(t *testing.T) {
	d := testenv.NewDisk(1)
	l := openLog(t, d, Options{SegmentSize: 1 << 20})
	ops := d.Ops()
	require.NoError(t, l.Append(Batch{HardState: stateMessage(1, 1, 0), Entries: newEntries(1, 1000, 1, 256), Sync: true}))
	require.Equal(t, 2, d.Ops()-ops)
	require.NoError(t, l.Append(Batch{Entries: newEntries(1001, 10, 1, 256)}))
	require.Equal(t, 3, d.Ops()-ops)
	require.NoError(t, l.Append(Batch{Sync: true}))
	require.Equal(t, 4, d.Ops()-ops)
	require.NoError(t, l.Append(Batch{Sync: true}))
	require.Equal(t, 4, d.Ops()-ops, "all records are durable already")
}
