package dedup

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// framed returns a file of buckets with a correct CRC, so that Read checks the content of the
// buckets.
func framed(count uint64, buckets ...[]byte) []byte {
	file := binary.BigEndian.AppendUint64([]byte(magic), count)
	file = append(file, bytes.Join(buckets, nil)...)
	return binary.BigEndian.AppendUint32(file, crc32.Checksum(file, castagnoli))
}

// packed returns entries as a bucket of a file, as pack encodes them, which need not be sorted.
func packed(entries ...entry) []byte {
	return pack(entries).append(nil)
}

func TestContentIsChecked(t *testing.T) {
	a, b := entry{id: [16]byte{0, 1, 6: 5}, index: 3}, entry{id: [16]byte{0, 2, 6: 5}, index: 2}
	good := packed(a, b)
	_, err := Read(bytes.NewReader(framed(2, good)))
	require.NoError(t, err)
	c := entry{id: [16]byte{0, 1, 6: 4}} // it has the time of a, and is less
	full := make([]entry, maxEntries+1)
	for i := range full {
		binary.BigEndian.PutUint32(full[i].id[6:], uint32(i))
	}
	_, err = Read(bytes.NewReader(framed(maxEntries+1, packed(full[:maxEntries]...), packed(full[maxEntries]))))
	require.NoError(t, err)
	raw := func(h header, data ...byte) []byte { return (&bucket{header: h, data: data}).append(nil) }
	for name, bad := range map[string][]byte{
		"count":            framed(3, good),
		"small count":      framed(1, good),
		"great count":      framed(math.MaxUint64, good),
		"twice":            framed(2, packed(a, a)),
		"half":             framed(2, good[:len(good)-2]),
		"order":            framed(2, packed(a, c)),
		"order of buckets": framed(maxEntries+1, packed(full[1:]...), packed(full[0])),
		"same in buckets":  framed(maxEntries+1, packed(full[:maxEntries]...), packed(full[maxEntries-1])),
		"bucket too long":  framed(maxEntries+1, packed(full...)),
		"bucket too short": framed(maxEntries+1, packed(full[0]), packed(full[1:]...)),
		"time too wide":    framed(1, raw(header{TimeWidth: 7}, make([]byte, 7+10+4)...)),
		"index too wide":   framed(1, raw(header{IndexWidth: 9}, make([]byte, 10+9+4)...)),
		"zero bytes":       framed(1, raw(header{TimeWidth: 1, IndexWidth: 1}, make([]byte, 1+10+1+4)...)),
		"first ID":         framed(1, raw(header{First: a.id}, make([]byte, 10+4)...)),
		"base of indexes":  framed(1, raw(header{First: c.id, Base: 1, IndexWidth: 1}, append(append(c.id[6:], 1), 0, 0, 0, 0)...)),
		"far time": framed(2, raw(header{First: b.id, TimeWidth: 6},
			append(append(make([]byte, 6), append(b.id[6:], 0, 0, 0, 0)...), bytes.Repeat([]byte{0xff}, 20)...)...)),
		"far index": framed(2, raw(header{First: c.id, Base: 1, IndexWidth: 8}, append(append(append(
			append(c.id[6:], make([]byte, 8+4)...), a.id[6:]...), bytes.Repeat([]byte{0xff}, 8)...), 0, 0, 0, 0)...)),
	} {
		_, err := Read(bytes.NewReader(bad))
		require.ErrorIs(t, err, ErrCorrupt, name)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(encoded(f, small().Snapshot()), uint64(0))
	f.Add(encoded(f, New().Snapshot()), uint64(0))
	f.Add(packed(entry{id: [16]byte{1}, index: 1}), uint64(1))
	f.Add(packed(entry{id: [16]byte{1}, index: 1}, entry{id: [16]byte{2, 15: 3}}), uint64(2))
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
