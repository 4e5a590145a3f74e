package filelog

// The power fails, or the disk, at every operation of a script.

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

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv/crashdisk"
)

var small = Options{SegmentSize: 4096, CacheSize: 2000}

// script is operations, and the models before each and after the last.
func script(seed uint64, n int) ([]op, []model) {
	r := rand.New(rand.NewPCG(seed, 2))
	var (
		ops    []op
		models = []model{{}}
	)
	for len(ops) < n {
		m := models[len(models)-1]
		o := m.random(r, false)
		ops = append(ops, o)
		models = append(models, m.after(o))
	}
	return ops, models
}

// play does the script until an operation fails. acked is how many operations are known to be
// durable, done how many have returned without an error; done+1 may have happened.
func play(d *crashdisk.Disk, ops []op) (l *Log, acked, done int, err error) {
	if l, err = Open(d, "data/log", small); err != nil {
		return nil, 0, 0, err
	}
	for i, o := range ops {
		if o.reopen {
			if err = l.Close(); err != nil {
				return l, acked, i, err
			}
			next, err := Open(d, "data/log", small)
			if err != nil {
				return l, acked, i, err
			}
			l, acked = next, i+1
			continue
		}
		if err = o.do(l); err != nil {
			return l, acked, i, err
		}
		if o.synced() {
			acked = i + 1
		}
	}
	return l, acked, len(ops), nil
}

// requireOneOf requires that the log is as after one of the operations from acked on, the one
// that was under way included.
func requireOneOf(t *testing.T, got model, models []model, acked, done int) int {
	t.Helper()
	for i := min(done+1, len(models)-1); i >= acked; i-- {
		if models[i].equal(got) {
			return i
		}
	}
	for i := acked; i <= min(done+1, len(models)-1); i++ {
		t.Logf("after %d: %v", i, models[i])
	}
	require.Fail(t, "the log is as at no time from what was acknowledged on", "acknowledged %d, done %d, got %v", acked, done, got)
	return 0
}

func TestEveryCrash(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			ops, models := script(seed, 50)
			d := crashdisk.New(rand.New(rand.NewPCG(seed, 3)))
			l, _, _, err := play(d, ops)
			require.NoError(t, err)
			require.NoError(t, l.Close())
			all := d.Ops()
			for at := 1; at <= all; at++ {
				d := crashdisk.New(rand.New(rand.NewPCG(seed, uint64(at))))
				d.CrashAt(at)
				l, acked, done, err := play(d, ops)
				if l != nil {
					_ = l.Close()
				}
				if err == nil {
					done = len(ops)
				}
				for again := range 2 {
					found := d.Crash()
					l, err := Open(found, "data/log", small)
					require.NoError(t, err, "crash at %d of %d", at, all)
					now := requireOneOf(t, read(t, l), models, acked, done)
					if again == 0 {
						goOn(t, found, l, models[now])
						continue
					}
					require.NoError(t, l.Close())
				}
			}
		})
	}
}

// goOn appends to a log that was found after a crash, lets the power fail again, also while
// the log is being opened, and requires that nothing of it is lost.
func goOn(t *testing.T, d *crashdisk.Disk, l *Log, m model) {
	o := op{batch: Batch{Entries: entries(m.last()+1, 2, m.term(m.last())+1, 50), Sync: true}}
	require.NoError(t, o.do(l))
	m = m.after(o)
	again := d.Crash()
	_ = l.Close()
	again.CrashAt(again.Ops() + 5)
	if l, err := Open(again, "data/log", small); err == nil {
		_ = l.Close()
	}
	l, err := Open(again.Crash(), "data/log", small)
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	got := read(t, l)
	require.True(t, m.equal(got), "want %v\ngot  %v", m, got)
}

func TestEveryDiskError(t *testing.T) {
	ops, models := script(4, 60)
	d := crashdisk.New(rand.New(rand.NewPCG(1, 1)))
	l, _, _, err := play(d, ops)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	for at := 1; at <= d.Ops(); at++ {
		d := crashdisk.New(rand.New(rand.NewPCG(1, uint64(at))))
		d.FailAt(at)
		l, acked, done, err := play(d, ops)
		if l != nil && err != nil && !ops[done].reopen {
			require.ErrorIs(t, err, crashdisk.ErrIO)
			last, _ := l.LastIndex()
			require.Equal(t, err, l.Append(Batch{Entries: entries(last+1, 1, 100, 1), Sync: true}), "error at %d", at)
			require.Equal(t, err, l.Append(Batch{Sync: true}))
			require.Equal(t, err, l.Compact(last))
			require.Equal(t, err, l.Reset(last+100, 100))
		}
		if l != nil {
			_ = l.Close()
			require.ErrorIs(t, l.Append(Batch{}), ErrClosed)
		}
		l, err = Open(d.Crash(), "data/log", small)
		require.NoError(t, err, "error at %d", at)
		requireOneOf(t, read(t, l), models, acked, done)
		require.NoError(t, l.Close())
	}
}

func TestEveryReadError(t *testing.T) {
	ops, models := script(4, 60)
	d := crashdisk.New(rand.New(rand.NewPCG(1, 1)))
	l, _, _, err := play(d, ops)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	before := d.Reads()
	l, err = Open(d, "data/log", small)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	n := d.Reads() - before
	for i := 1; i <= n; i++ {
		d.FailReadAt(d.Reads() + i)
		_, err := Open(d, "data/log", small)
		require.ErrorIs(t, err, crashdisk.ErrIO)
		require.NotErrorIs(t, err, ErrCorrupt, "an error of the disk is no damage")
	}
	d.FailReadAt(0)
	l, err = Open(d, "data/log", small)
	require.NoError(t, err)
	require.True(t, models[len(models)-1].equal(read(t, l)))
	require.NoError(t, l.Close())
}

// image is what files of a log hold.
type image map[string][]byte

func imageOf(t *testing.T, d *crashdisk.Disk) image {
	names, err := d.List("log")
	require.NoError(t, err)
	files := image{}
	for _, name := range names {
		if !strings.HasSuffix(name, suffix) {
			continue
		}
		f, err := d.OpenRead(path.Join("log", name))
		require.NoError(t, err)
		size, err := f.Size()
		require.NoError(t, err)
		files[name] = make([]byte, size)
		_, err = f.ReadAt(files[name], 0)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	return files
}

func (i image) disk(t require.TestingT) *crashdisk.Disk {
	d := crashdisk.New(rand.New(rand.NewPCG(1, 1)))
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

// threeSegments is a small log whose batches were all synced.
func threeSegments(t *testing.T) (image, []model) {
	d := crashdisk.New(rand.New(rand.NewPCG(1, 1)))
	l, err := Open(d, "log", Options{SegmentSize: 1500})
	require.NoError(t, err)
	models := []model{{}}
	step := func(o op) {
		require.NoError(t, o.do(l))
		models = append(models, models[len(models)-1].after(o))
	}
	step(op{batch: Batch{HardState: hard(1, 1, 0), Entries: entries(1, 3, 1, 150), Sync: true}})
	step(op{batch: Batch{HardState: hard(1, 1, 3), Entries: entries(4, 2, 1, 150), Sync: true}})
	step(op{batch: Batch{Entries: entries(6, 4, 1, 150), Sync: true}})
	step(op{compact: 2})
	step(op{batch: Batch{HardState: hard(2, 2, 5), Entries: entries(8, 3, 2, 100), Sync: true}})
	step(op{batch: Batch{HardState: hard(2, 2, 7), Entries: entries(11, 1, 2, 100), Sync: true}})
	step(op{batch: Batch{Entries: entries(12, 1, 2, 100), Sync: true}})
	require.NoError(t, l.Close())
	files := imageOf(t, d)
	require.Len(t, files, 3)
	return files, models
}

func TestEveryFlippedBit(t *testing.T) {
	files, models := threeSegments(t)
	whole, beforeLast := models[len(models)-1], models[len(models)-2]
	refused, lastLost := 0, 0
	for name, data := range files {
		for i := range data {
			data[i] ^= 1 << (i % 8)
			l, err := Open(files.disk(t), "log", Options{SegmentSize: 1500})
			if err != nil {
				require.ErrorIs(t, err, ErrCorrupt, "%s %d", name, i)
				require.ErrorContains(t, err, "log/"+strings.Split(name, "-")[0])
				require.ErrorContains(t, err, "offset")
				require.ErrorContains(t, err, "delete the data of this peer")
				refused++
			} else {
				got := read(t, l)
				if !whole.equal(got) {
					require.True(t, beforeLast.equal(got), "%s byte %d: %v", name, i, got)
					lastLost++
				}
				require.NoError(t, l.Close())
			}
			data[i] ^= 1 << (i % 8)
		}
	}
	require.Positive(t, refused)
	require.Positive(t, lastLost, "the last record cannot be told from a torn one")
}

// A byte that changes while the log is open is found when it is read.
func TestFlippedBitWhileOpen(t *testing.T) {
	files, models := threeSegments(t)
	want := models[len(models)-1]
	d := files.disk(t)
	l, err := Open(d, "log", Options{SegmentSize: 1500, CacheSize: -1})
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	found := 0
	for _, s := range l.Segments() {
		f, err := d.Open(s.Name)
		require.NoError(t, err)
		for i := range s.Size {
			var b [1]byte
			_, err := f.ReadAt(b[:], i)
			require.NoError(t, err)
			_, err = f.WriteAt([]byte{b[0] ^ 4}, i)
			require.NoError(t, err)
			for index := uint64(3); index <= want.last(); index++ {
				got, err := l.Entries(index, index+1, raftNoLimit)
				if err != nil {
					require.ErrorIs(t, err, ErrCorrupt)
					found++
					continue
				}
				require.Equal(t, want.entries[index-3].String(), got[0].String())
			}
			_, err = f.WriteAt(b[:], i)
			require.NoError(t, err)
		}
		require.NoError(t, f.Close())
	}
	require.Positive(t, found)
}

func TestLostSegment(t *testing.T) {
	files, _ := threeSegments(t)
	i := 0
	for _, name := range sortedNames(files) {
		i++
		rest := image{}
		for n, data := range files {
			if n != name {
				rest[n] = data
			}
		}
		l, err := Open(rest.disk(t), "log", Options{})
		if i == len(files) {
			require.NoError(t, err, "the last one cannot be missed")
			require.NoError(t, l.Close())
			continue
		}
		require.ErrorIs(t, err, ErrCorrupt, name)
	}
}

func sortedNames(files image) []string { return slices.Sorted(maps.Keys(files)) }

// cutRecord damages the newest segment's record of a number.
func (i image) cutRecord(t *testing.T, number uint64, do func(record []byte)) {
	names := sortedNames(i)
	name := names[len(names)-1]
	data := i[name]
	p, _ := parseName(name)
	for off := int64(0); ; {
		h, ok := p.head(data[off:off+headSize], off)
		require.True(t, ok, "no record %d", number)
		next := aligned(off + headSize + int64(h.length))
		if h.number == number {
			do(data[off : off+headSize+int64(h.length)])
			return
		}
		off = next
	}
}

// tornLog is a log of one segment: records 2 and 3 synced, 4 to 6 not.
func tornLog(t *testing.T) (image, []model) {
	d := crashdisk.New(rand.New(rand.NewPCG(1, 1)))
	l, err := Open(d, "log", Options{SegmentSize: 1 << 16})
	require.NoError(t, err)
	models := []model{{}, {}}
	for i := range uint64(5) {
		o := op{batch: Batch{Entries: entries(1+4*i, 4, 1, 400), Sync: i < 2}}
		require.NoError(t, o.do(l))
		models = append(models, models[len(models)-1].after(o))
	}
	files := imageOf(t, d)
	require.NoError(t, l.Close())
	return files, models
}

func TestTornTailIsWiped(t *testing.T) {
	for _, number := range []uint64{4, 5, 6} {
		for piece := range 3 {
			files, models := tornLog(t)
			files.cutRecord(t, number, func(b []byte) { clear(b[piece*512 : (piece+1)*512]) })
			d := files.disk(t)
			require.NoError(t, Scan(d, "log", func(Record) error { return nil }))
			l, err := Open(d, "log", Options{SegmentSize: 1 << 16})
			require.NoError(t, err)
			m := models[number-1]
			require.True(t, m.equal(read(t, l)))
			// What is appended in its place, shorter or as long, is not followed by what was
			// there.
			o := op{batch: Batch{Entries: entries(m.last()+1, 4, 2, 400), Sync: true}}
			require.NoError(t, o.do(l))
			m = m.after(o)
			found := imageOf(t, d).disk(t)
			require.NoError(t, l.Close())
			l, err = Open(found, "log", Options{SegmentSize: 1 << 16})
			require.NoError(t, err)
			require.True(t, m.equal(read(t, l)))
			require.NoError(t, l.Close())
		}
	}
}

func TestDurableRecordThatIsDamagedIsNoTornTail(t *testing.T) {
	for _, number := range []uint64{2, 3} {
		for _, damage := range []func(b []byte){
			func(b []byte) { clear(b) },
			func(b []byte) { b[0] ^= 64 },
			func(b []byte) { b[100] ^= 1 },
			func(b []byte) { b[3] = 255 },
		} {
			files, _ := tornLog(t)
			files.cutRecord(t, number, damage)
			d := files.disk(t)
			_, err := Open(d, "log", Options{SegmentSize: 1 << 16})
			require.ErrorIs(t, err, ErrCorrupt)
			require.Equal(t, files, imageOf(t, d), "nothing is changed")
			last := uint64(0)
			require.ErrorIs(t, Scan(d, "log", func(r Record) error { last = r.Number; return nil }), ErrCorrupt)
			require.Equal(t, number-1, last, "what is before it is told")
		}
	}
}

// TestScanOfLogThatGrows: what was written after the segment was read is not taken for what
// is left of a damaged one.
func TestScanOfLogThatGrows(t *testing.T) {
	d := crashdisk.New(rand.New(rand.NewPCG(1, 1)))
	l, err := Open(d, "log", Options{SegmentSize: 1 << 16})
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	next := uint64(1)
	grow := func() {
		for range 3 {
			require.NoError(t, l.Append(Batch{Entries: entries(next, 4, 1, 400), Sync: true}))
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
	require.EqualValues(t, 12, last, "it was read before")
}

// An entry whose data are a piece of the log itself is no record.
func TestDataThatLookLikeRecords(t *testing.T) {
	files, _ := tornLog(t)
	var old []byte
	for _, data := range files {
		old = data[:8000]
	}
	d := crashdisk.New(rand.New(rand.NewPCG(1, 1)))
	l, err := Open(d, "log", Options{SegmentSize: 1 << 16})
	require.NoError(t, err)
	require.NoError(t, l.Append(Batch{Entries: entries(1, 1, 1, 10), Sync: true}))
	for pad := range uint64(3) {
		require.NoError(t, l.Append(Batch{Entries: []*raftpb.Entry{entry(2+pad, 1, append(make([]byte, pad), old...))}}))
	}
	torn := imageOf(t, d)
	require.NoError(t, l.Close())
	torn.cutRecord(t, 3, func(b []byte) { b[4]++ })
	l, err = Open(torn.disk(t), "log", Options{SegmentSize: 1 << 16})
	require.NoError(t, err)
	last, err := l.LastIndex()
	require.NoError(t, err)
	require.EqualValues(t, 1, last)
	require.NoError(t, l.Close())
}

// A process that ends without a power failure leaves what it has not synced readable. Once
// that is the log, it must be durable.
func TestWhatIsReadOnOpeningIsDurable(t *testing.T) {
	files, models := tornLog(t)
	d := files.disk(t) // nothing of it synced
	l, err := Open(d, "log", Options{SegmentSize: 1 << 16})
	require.NoError(t, err)
	require.True(t, models[len(models)-1].equal(read(t, l)))
	for range 10 {
		found, err := Open(d.Crash(), "log", Options{SegmentSize: 1 << 16})
		require.NoError(t, err)
		require.True(t, models[len(models)-1].equal(read(t, found)))
		require.NoError(t, found.Close())
	}
	_ = l.Close()
}
