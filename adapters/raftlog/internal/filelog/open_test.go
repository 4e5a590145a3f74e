package filelog

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv"
)

var smallLog = Options{SegmentSize: 4096, CacheSize: 2000}

func TestOpen_LocksTheLog(t *testing.T) {
	for name, d := range map[string]disk.FS{"crashdisk": testenv.NewDisk(1), "os": disk.OS(t.TempDir())} {
		t.Run(name, func(t *testing.T) {
			l := openLog(t, d, Options{SegmentSize: smallSegment})
			_, err := Open(d, "log", Options{})
			require.ErrorIs(t, err, disk.ErrLocked)
			require.NoError(t, l.Append(Batch{Entries: newEntries(1, 3, 1, 10)}))
			r, err := Open(d, "log", Options{ReadOnly: true})
			require.NoError(t, err)
			require.Len(t, readModel(t, r).entries, 3)
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
			require.Len(t, readModel(t, openLog(t, d, Options{})).entries, 3)
		})
	}
	_, err := Open(testenv.NewDisk(1), "none", Options{ReadOnly: true})
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// execution is the result of executing operations on a disk that may fail.
type execution struct {
	log   *Log
	acked int   // the number of operations that are known to be durable
	done  int   // the number of operations that succeeded; the next one may have taken effect as well
	err   error // the error of the operation that failed
}

// execute opens a log, and executes operations until one of them fails.
func execute(d *testenv.Disk, ops []operation) (e execution) {
	if e.log, e.err = Open(d, "data/log", smallLog); e.err != nil {
		return e
	}
	for i, o := range ops {
		e.done = i
		if o.reopen {
			if e.err = e.log.Close(); e.err != nil {
				return e
			}
			reopened, err := Open(d, "data/log", smallLog)
			if err != nil {
				e.err = err
				return e
			}
			e.log, e.acked = reopened, i+1
			continue
		}
		if e.err = o.apply(e.log); e.err != nil {
			return e
		}
		if o.isSynced() {
			e.acked = i + 1
		}
	}
	e.done = len(ops)
	return e
}

// executeAll executes operations on a disk that does not fail, and closes the log.
func executeAll(t *testing.T, d *testenv.Disk, ops []operation) {
	e := execute(d, ops)
	require.NoError(t, e.err)
	require.NoError(t, e.log.Close())
}

// requireState requires that a log with the content got contains the results of all acknowledged
// operations, and possibly of later ones up to the operation that failed. It returns the number of
// operations that the log contains.
func (e execution) requireState(t *testing.T, got model, models []model) int {
	t.Helper()
	most := min(e.done+1, len(models)-1)
	for i := most; i >= e.acked; i-- {
		if models[i].requireEqual(got) {
			return i
		}
	}
	for i := e.acked; i <= most; i++ {
		t.Logf("after %d: %v", i, models[i])
	}
	require.Fail(t, "the log has never had this content since the last acknowledgement", "acknowledged %d, done %d, got %v", e.acked, e.done, got)
	return 0
}

// TestOpen_FindsDurableEntriesAfterCrash checks that, after a crash in any operation of the disk, Open finds
// everything that the log had acknowledged, and the log can be written again.
func TestOpen_FindsDurableEntriesAfterCrash(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			ops, models := randomOperations(seed, 50)
			d := testenv.NewDisk(seed)
			executeAll(t, d, ops)
			all := d.Ops()
			for at := 1; at <= all; at++ {
				d := testenv.NewDisk(seed<<20 + uint64(at))
				d.CrashAt(at)
				e := execute(d, ops)
				if e.log != nil {
					_ = e.log.Close()
				}
				for outcome := range 2 {
					found := d.Crash()
					l, err := Open(found, "data/log", smallLog)
					require.NoError(t, err, "crash at %d of %d", at, all)
					now := e.requireState(t, readModel(t, l), models)
					if outcome == 0 {
						appendAndCrashAgain(t, found, l, models[now])
						continue
					}
					require.NoError(t, l.Close())
				}
			}
		})
	}
}

// appendAndCrashAgain appends to a log that was opened after a crash, lets the disk crash twice more,
// once while the log is being opened, and requires that the log is complete.
func appendAndCrashAgain(t *testing.T, d *testenv.Disk, l *Log, m model) {
	o := operation{batch: Batch{Entries: newEntries(m.lastIndex()+1, 2, m.termOf(m.lastIndex())+1, 50), Sync: true}}
	require.NoError(t, o.apply(l))
	m = m.applyOperation(o)
	again := d.Crash()
	_ = l.Close()
	again.CrashAt(again.Ops() + 5)
	if l, err := Open(again, "data/log", smallLog); err == nil {
		_ = l.Close()
	}
	requireLog(t, again.Crash(), "data/log", smallLog, m)
}

// TestLog_RejectsWritesAfterDiskError checks that after an error in any operation of the disk the log
// rejects all writes with the same error, and that Open finds everything that the log had acknowledged.
func TestLog_RejectsWritesAfterDiskError(t *testing.T) {
	ops, models := randomOperations(4, 60)
	d := testenv.NewDisk(1)
	executeAll(t, d, ops)
	for at := 1; at <= d.Ops(); at++ {
		d := testenv.NewDisk(uint64(at))
		d.FailAt(at)
		e := execute(d, ops)
		if l := e.log; l != nil && e.err != nil && !ops[e.done].reopen {
			require.ErrorIs(t, e.err, testenv.ErrIO)
			last, _ := l.LastIndex()
			require.Equal(t, e.err, l.Append(Batch{Entries: newEntries(last+1, 1, 100, 1), Sync: true}), "error at %d", at)
			require.Equal(t, e.err, l.Append(Batch{Sync: true}))
			require.Equal(t, e.err, l.Compact(last))
			require.Equal(t, e.err, l.Reset(last+100, 100))
		}
		if e.log != nil {
			_ = e.log.Close()
			require.ErrorIs(t, e.log.Append(Batch{}), ErrClosed)
		}
		l, err := Open(d.Crash(), "data/log", smallLog)
		require.NoError(t, err, "error at %d", at)
		e.requireState(t, readModel(t, l), models)
		require.NoError(t, l.Close())
	}
}

// TestOpen_ReturnsEveryReadError checks that Open returns each error of reading the disk, and does not
// report it as damage of the log.
func TestOpen_ReturnsEveryReadError(t *testing.T) {
	ops, models := randomOperations(4, 60)
	d := testenv.NewDisk(1)
	executeAll(t, d, ops)
	before := d.Reads()
	l, err := Open(d, "data/log", smallLog)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	n := d.Reads() - before
	for i := 1; i <= n; i++ {
		d.FailReadAt(d.Reads() + i)
		_, err := Open(d, "data/log", smallLog)
		require.ErrorIs(t, err, testenv.ErrIO)
		require.NotErrorIs(t, err, ErrCorrupt)
	}
	d.FailReadAt(0)
	requireLog(t, d, "data/log", smallLog, models[len(models)-1])
}

// TestOpen_DetectsEveryFlippedBit checks that Open detects a flipped bit at any position, except in the
// last record, whose damage cannot be distinguished from a crash.
func TestOpen_DetectsEveryFlippedBit(t *testing.T) {
	files, models := threeSegments(t)
	complete, beforeLast := models[len(models)-1], models[len(models)-2]
	detected, lastLost := 0, 0
	for name, data := range files {
		for i := range data {
			data[i] ^= 1 << (i % 8)
			l, err := Open(files.toDisk(t), "log", Options{SegmentSize: 1500})
			if err != nil {
				require.ErrorIs(t, err, ErrCorrupt, "%s %d", name, i)
				require.ErrorContains(t, err, "log/"+strings.Split(name, "-")[0])
				require.ErrorContains(t, err, "offset")
				require.ErrorContains(t, err, "delete the data of this peer")
				detected++
			} else {
				got := readModel(t, l)
				if !complete.requireEqual(got) {
					require.True(t, beforeLast.requireEqual(got), "%s byte %d: %v", name, i, got)
					lastLost++
				}
				require.NoError(t, l.Close())
			}
			data[i] ^= 1 << (i % 8)
		}
	}
	require.Positive(t, detected)
	require.Positive(t, lastLost, "damage of the last record was reported")
}

// TestOpen_DetectsLostSegment checks that Open detects the loss of any segment except the last one.
func TestOpen_DetectsLostSegment(t *testing.T) {
	files, _ := threeSegments(t)
	for i, name := range files.sortedNames() {
		rest := image{}
		for n, data := range files {
			if n != name {
				rest[n] = data
			}
		}
		l, err := Open(rest.toDisk(t), "log", Options{})
		if i == len(files)-1 {
			require.NoError(t, err)
			require.NoError(t, l.Close())
			continue
		}
		require.ErrorIs(t, err, ErrCorrupt, name)
	}
}

// TestOpen_RemovesTornTail checks that Open overwrites all parts of a torn tail. Otherwise later
// records could be followed by such parts.
func TestOpen_RemovesTornTail(t *testing.T) {
	for _, number := range []uint64{4, 5, 6} {
		for part := range 3 {
			files, models := unsyncedTail(t)
			files.damageRecord(t, number, func(b []byte) { clear(b[part*512 : (part+1)*512]) })
			d := files.toDisk(t)
			require.NoError(t, Scan(d, "log", func(Record) error { return nil }))
			l, err := Open(d, "log", Options{SegmentSize: smallSegment})
			require.NoError(t, err)
			m := models[number-1]
			require.True(t, m.requireEqual(readModel(t, l)))
			o := operation{batch: Batch{Entries: newEntries(m.lastIndex()+1, 4, 2, 400), Sync: true}}
			require.NoError(t, o.apply(l))
			m = m.applyOperation(o)
			found := imageOf(t, d).toDisk(t)
			require.NoError(t, l.Close())
			requireLog(t, found, "log", Options{SegmentSize: smallSegment}, m)
		}
	}
}

// TestOpen_DetectsDamagedDurableRecord checks that Open reports a damaged record as damage if the
// record was durable, and does not remove it like a torn tail.
func TestOpen_DetectsDamagedDurableRecord(t *testing.T) {
	for _, number := range []uint64{2, 3} {
		for _, damage := range []func(b []byte){
			func(b []byte) { clear(b) },
			func(b []byte) { b[0] ^= 64 },
			func(b []byte) { b[100] ^= 1 },
			func(b []byte) { b[3] = 255 },
		} {
			files, _ := unsyncedTail(t)
			files.damageRecord(t, number, damage)
			d := files.toDisk(t)
			_, err := Open(d, "log", Options{SegmentSize: smallSegment})
			require.ErrorIs(t, err, ErrCorrupt)
			require.Equal(t, files, imageOf(t, d), "the log was changed")
			last := uint64(0)
			require.ErrorIs(t, Scan(d, "log", func(r Record) error { last = r.Number; return nil }), ErrCorrupt)
			require.Equal(t, number-1, last, "Scan has not visited the records before the damage")
		}
	}
}

// TestOpen_DetectsTruncatedFile checks that Open returns an error and changes nothing if the last
// segment of the log was cut off within a record.
func TestOpen_DetectsTruncatedFile(t *testing.T) {
	files, models := unsyncedTail(t)
	name := files.sortedNames()[0]
	data := files[name]
	id, _ := parseFileName(name)
	for begin, number := int64(0), 0; ; number++ {
		h, ok := id.decodeHead(data[begin:begin+headSize], begin)
		if !ok {
			require.Equal(t, len(models)-1, number)
			break
		}
		end := begin + headSize + int64(h.length)
		for _, size := range []int64{begin, begin + 1, begin + 8, begin + headSize - 1, begin + headSize, (begin + end) / 2, end - 1} {
			files[name] = data[:size]
			d := files.toDisk(t)
			l, err := Open(d, "log", Options{SegmentSize: smallSegment})
			if size > 0 && size == begin { // as after a crash while the log seals the segment
				require.NoError(t, err)
				require.NoError(t, l.Close())
				continue
			}
			require.ErrorIs(t, err, ErrCorrupt, "%d bytes", size)
			require.Equal(t, files, imageOf(t, d), "the log was changed")
		}
		begin = alignUp(end)
	}
}

// TestOpen_DoesNotMistakeEntryDataForRecords checks that Open does not take the data of an entry for
// records, even if the data is a copy of a part of a log.
func TestOpen_DoesNotMistakeEntryDataForRecords(t *testing.T) {
	files, _ := unsyncedTail(t)
	var old []byte
	for _, data := range files {
		old = data[:8000]
	}
	d := testenv.NewDisk(1)
	l, err := Open(d, "log", Options{SegmentSize: smallSegment})
	require.NoError(t, err)
	require.NoError(t, l.Append(Batch{Entries: newEntries(1, 1, 1, 10), Sync: true}))
	for pad := range uint64(3) {
		require.NoError(t, l.Append(Batch{Entries: []*raftpb.Entry{entry(2+pad, 1, append(make([]byte, pad), old...))}}))
	}
	torn := imageOf(t, d)
	require.NoError(t, l.Close())
	torn.damageRecord(t, 3, func(b []byte) { b[4]++ })
	l, err = Open(torn.toDisk(t), "log", Options{SegmentSize: smallSegment})
	require.NoError(t, err)
	last, err := l.LastIndex()
	require.NoError(t, err)
	require.EqualValues(t, 1, last)
	require.NoError(t, l.Close())
}

// TestOpen_MakesReadableRecordsDurable checks that Open makes records durable that a killed process has
// written and not synced, because the log contains these records from then on.
func TestOpen_MakesReadableRecordsDurable(t *testing.T) {
	files, models := unsyncedTail(t)
	d := files.toDisk(t) // nothing on this disk is durable
	l, err := Open(d, "log", Options{SegmentSize: smallSegment})
	require.NoError(t, err)
	require.True(t, models[len(models)-1].requireEqual(readModel(t, l)))
	for range 10 {
		requireLog(t, d.Crash(), "log", Options{SegmentSize: smallSegment}, models[len(models)-1])
	}
	_ = l.Close()
}

// FuzzOpen opens arbitrary bytes as a segment, after the header of a segment, as the second of two
// segments, and as the payloads of records with correct checksums. Open must return an error, or a log
// that can be read and appended to. Each input is opened only once, so that the fuzzer tries many.
func FuzzOpen(f *testing.F) {
	d := testenv.NewDisk(1)
	l, err := Open(d, "log", Options{SegmentSize: 1500})
	require.NoError(f, err)
	var m model
	r := rand.New(rand.NewPCG(1, 1))
	for range 10 {
		o := operation{batch: Batch{Entries: newEntries(m.lastIndex()+1, 2, 1, r.IntN(300)), HardState: stateMessage(1, 1, m.lastIndex())}}
		require.NoError(f, o.apply(l))
		m = m.applyOperation(o)
	}
	for _, b := range imageOf(f, d) {
		for where := range placements {
			f.Add(b, typeBatch, byte(where))
			f.Add(b[headSize:], typeHeader, byte(where))
			f.Add(b[headSize+headerSize+headSize:], typeBatch, byte(where))
		}
	}
	f.Add(mark{1, 1}.appendTo(nil), typeMark, byte(0))
	require.NoError(f, l.Close())
	f.Fuzz(func(t *testing.T, data []byte, kind, where byte) {
		id := segmentID{1, 1}
		tryOpen(t, placements[int(where)%len(placements)](id, kind, data))
	})
}

// firstHeader returns the header record of the first segment, and the checksum of that record.
func firstHeader(id segmentID) (first []byte, crc uint32) {
	first = segmentHeader{id: id}.appendTo(make([]byte, headSize))
	return first, id.sealRecord(first, 0, recordHead{kind: typeHeader, number: 1}, 0)
}

// placements are functions that place data into the files of a log, each at another position. The first
// two place the data into the payload of a record with correct checksums.
var placements = []func(id segmentID, kind byte, data []byte) image{
	func(id segmentID, kind byte, data []byte) image {
		first, crc := firstHeader(id)
		record := append(make([]byte, headSize), data...)
		id.sealRecord(record, int64(len(first)), recordHead{kind: kind, number: 2, durable: 1}, crc)
		return image{id.fileName(): append(first, record...)}
	},
	func(id segmentID, _ byte, data []byte) image {
		record := append(make([]byte, headSize), data...)
		id.sealRecord(record, 0, recordHead{kind: typeHeader, number: 1}, 0)
		return image{id.fileName(): record}
	},
	func(id segmentID, _ byte, data []byte) image { return image{id.fileName(): data} },
	func(id segmentID, _ byte, data []byte) image {
		first, _ := firstHeader(id)
		return image{id.fileName(): first, segmentID{1, 2}.fileName(): data}
	},
	func(id segmentID, _ byte, data []byte) image {
		first, _ := firstHeader(id)
		return image{id.fileName(): append(first, data...)}
	},
}

func tryOpen(t *testing.T, files image) {
	d := files.toDisk(t)
	l, err := Open(d, "log", Options{SegmentSize: 4096})
	if err != nil {
		require.ErrorIs(t, err, ErrCorrupt)
		return
	}
	defer func() { require.NoError(t, l.Close()) }()
	first, err := l.FirstIndex()
	require.NoError(t, err)
	last, err := l.LastIndex()
	require.NoError(t, err)
	if _, err := l.Entries(first, last+1, noLimit); err != nil {
		require.ErrorIs(t, err, ErrCorrupt)
	}
	term, err := l.Term(last)
	require.NoError(t, err)
	if last < 1<<62 {
		require.NoError(t, l.Append(Batch{Entries: newEntries(last+1, 2, term, 10), Sync: true}))
	}
}
