package filelog

// Any bytes as a log.

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv/crashdisk"
)

// FuzzOpen opens arbitrary bytes as the second of two segments, and again as the payloads of
// records whose checksums are right. Whatever they are, it is an error, or a log that can be
// read and appended to.
func FuzzOpen(f *testing.F) {
	d := crashdisk.New(rand.New(rand.NewPCG(1, 1)))
	l, err := Open(d, "log", Options{SegmentSize: 1500})
	require.NoError(f, err)
	var m model
	r := rand.New(rand.NewPCG(1, 1))
	for range 10 {
		o := op{batch: Batch{Entries: entries(m.last()+1, 2, 1, r.IntN(300)), HardState: hard(1, 1, m.last())}}
		require.NoError(f, o.do(l))
		m = m.after(o)
	}
	for _, s := range l.Segments() {
		file, err := d.OpenRead(s.Name)
		require.NoError(f, err)
		b := make([]byte, s.Size)
		_, err = file.ReadAt(b, 0)
		require.NoError(f, err)
		f.Add(b, typeBatch)
		f.Add(b[headSize:], typeHeader)
		f.Add(b[headSize+headerSize+headSize:], typeBatch)
	}
	f.Add(mark{1, 1}.append(nil), typeMark)
	require.NoError(f, l.Close())
	f.Fuzz(func(t *testing.T, data []byte, kind byte) {
		p := place{1, 1}
		first := make([]byte, headSize)
		first = header{place: p}.append(first)
		crc := p.seal(first, 0, head{kind: typeHeader, number: 1}, 0)

		record := append(make([]byte, headSize), data...)
		p.seal(record, int64(len(first)), head{kind: kind, number: 2, synced: 1}, crc)
		tryLog(t, image{p.name(): append(append([]byte{}, first...), record...)})

		record = append(make([]byte, headSize), data...)
		p.seal(record, 0, head{kind: typeHeader, number: 1}, 0)
		tryLog(t, image{p.name(): record})

		tryLog(t, image{p.name(): data})
		tryLog(t, image{p.name(): first, place{1, 2}.name(): data})
		tryLog(t, image{p.name(): append(append([]byte{}, first...), data...)})
	})
}

func tryLog(t *testing.T, files image) {
	d := files.disk(t)
	_ = Scan(d, "log", func(Record) error { return nil })
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
	if _, err := l.Entries(first, last+1, raftNoLimit); err != nil {
		require.ErrorIs(t, err, ErrCorrupt)
	}
	term, err := l.Term(last)
	require.NoError(t, err)
	if last < 1<<62 {
		require.NoError(t, l.Append(Batch{Entries: entries(last+1, 2, term, 10), Sync: true}))
	}
}
