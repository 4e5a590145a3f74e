package ids

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/stretchr/testify/require"
)

// framed makes a file of blocks of data, with all lengths and CRCs as they should be, so
// that what is in the blocks is looked at.
func framed(count uint64, blocks ...[]byte) []byte {
	file := []byte(magic)
	crc := crc32.Update(0, castagnoli, file)
	add := func(p []byte) {
		crc = crc32.Update(crc, castagnoli, p)
		file = binary.LittleEndian.AppendUint32(append(file, p...), crc)
	}
	for _, block := range blocks {
		add(append(binary.LittleEndian.AppendUint32(nil, uint32(len(block))), block...))
	}
	add(binary.LittleEndian.AppendUint64(make([]byte, 4), count))
	return file
}

func TestContentIsChecked(t *testing.T) {
	a, b := entry{id: [16]byte{0, 1, 6: 5}, index: 3}, entry{id: [16]byte{0, 2, 6: 5}, index: 2}
	good := appendEntry(appendEntry(nil, entry{}, a), a, b)
	_, err := Read(bytes.NewReader(framed(2, good)))
	require.NoError(t, err)
	half := good[:len(good)-2]
	c := entry{id: [16]byte{0, 1, 6: 4}} // of the time of a, and before it
	var long []byte
	count := uint64(0)
	for last := (entry{}); len(long) <= maxBlock; count++ {
		e := last
		binary.BigEndian.PutUint32(e.id[6:], uint32(count))
		long, last = appendEntry(long, last, e), e
	}
	for name, bad := range map[string][]byte{
		"count":     framed(3, good),
		"twice":     framed(2, appendEntry(appendEntry(nil, entry{}, a), a, a)),
		"half":      framed(2, half),
		"order":     framed(2, appendEntry(appendEntry(nil, entry{}, a), a, c)),
		"time":      framed(1, append(binary.AppendUvarint(nil, 1<<48), make([]byte, 10+1+4)...)),
		"far time":  framed(2, append(binary.AppendUvarint(appendEntry(nil, entry{}, b), 1<<48-1), make([]byte, 10+1+4)...)),
		"no number": framed(1, bytes.Repeat([]byte{0xff}, 40)),
		"no index":  framed(1, append(make([]byte, 11), bytes.Repeat([]byte{0xff}, 11)...)),
		"too long":  framed(count, long),
	} {
		_, err := Read(bytes.NewReader(bad))
		require.ErrorIs(t, err, ErrCorrupt, name)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(encoded(f, small().Snapshot()), uint64(0))
	f.Add(encoded(f, New().Snapshot()), uint64(0))
	f.Add(appendEntry(nil, entry{}, entry{id: [16]byte{1}, index: 1}), uint64(1))
	f.Add(appendEntry(appendEntry(nil, entry{}, entry{id: [16]byte{1}, index: 1}), entry{id: [16]byte{1}, index: 1},
		entry{id: [16]byte{2, 15: 3}}), uint64(2))
	f.Fuzz(func(t *testing.T, data []byte, count uint64) {
		for _, file := range [][]byte{data, framed(count, data)} {
			table, err := Read(bytes.NewReader(file))
			if err != nil {
				require.ErrorIs(t, err, ErrCorrupt)
				continue
			}
			wellFormed(t, table)
			again, err := Read(bytes.NewReader(encoded(t, table.Snapshot())))
			require.NoError(t, err)
			require.Equal(t, table.Sum(), again.Sum())
		}
	})
}
