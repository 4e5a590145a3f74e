package replica

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// encodeFile returns the encoding of a table with the given buckets and a correct CRC, so that readIDs
// checks the content of the buckets.
func encodeFile(count uint64, buckets ...[]byte) []byte {
	file := binary.BigEndian.AppendUint64([]byte(idsMagic), count)
	file = append(file, bytes.Join(buckets, nil)...)
	return binary.BigEndian.AppendUint32(file, crc32.Checksum(file, castagnoli))
}

// encodeBucket returns the encoding of a bucket. The entries need not be sorted.
func encodeBucket(entries ...idEntry) []byte {
	return newBucket(entries).append(nil)
}

// TestReadIDs_RejectsInvalidContent checks that readIDs rejects a table that has a correct checksum and
// a content which WriteTo does not write.
func TestReadIDs_RejectsInvalidContent(t *testing.T) {
	a, b := idEntry{id: [16]byte{0, 1, 6: 5}, index: 3}, idEntry{id: [16]byte{0, 2, 6: 5}, index: 2}
	valid := encodeBucket(a, b)
	_, err := readIDs(bytes.NewReader(encodeFile(2, valid)))
	require.NoError(t, err)
	c := idEntry{id: [16]byte{0, 1, 6: 4}} // ID c has the same time as a, and is less than a
	full := make([]idEntry, maxEntries+1)
	for i := range full {
		binary.BigEndian.PutUint32(full[i].id[6:], uint32(i))
	}
	_, err = readIDs(bytes.NewReader(encodeFile(maxEntries+1, encodeBucket(full[:maxEntries]...), encodeBucket(full[maxEntries]))))
	require.NoError(t, err)
	raw := func(h bucketHeader, data ...byte) []byte { return (&bucket{bucketHeader: h, data: data}).append(nil) }
	for name, file := range map[string][]byte{
		"count":               encodeFile(3, valid),
		"small count":         encodeFile(1, valid),
		"large count":         encodeFile(math.MaxUint64, valid),
		"repeated entry":      encodeFile(2, encodeBucket(a, a)),
		"incomplete":          encodeFile(2, valid[:len(valid)-2]),
		"order":               encodeFile(2, encodeBucket(a, c)),
		"order of buckets":    encodeFile(maxEntries+1, encodeBucket(full[1:]...), encodeBucket(full[0])),
		"repeated in buckets": encodeFile(maxEntries+1, encodeBucket(full[:maxEntries]...), encodeBucket(full[maxEntries-1])),
		"bucket too long":     encodeFile(maxEntries+1, encodeBucket(full...)),
		"bucket too short":    encodeFile(maxEntries+1, encodeBucket(full[0]), encodeBucket(full[1:]...)),
		"time too wide":       encodeFile(1, raw(bucketHeader{TimeWidth: 7}, make([]byte, 7+10+4)...)),
		"index too wide":      encodeFile(1, raw(bucketHeader{IndexWidth: 9}, make([]byte, 10+9+4)...)),
		"unused bytes":        encodeFile(1, raw(bucketHeader{TimeWidth: 1, IndexWidth: 1}, make([]byte, 1+10+1+4)...)),
		"first ID":            encodeFile(1, raw(bucketHeader{First: a.id}, make([]byte, 10+4)...)),
		"base of indexes":     encodeFile(1, raw(bucketHeader{First: c.id, Base: 1, IndexWidth: 1}, append(append(c.id[6:], 1), 0, 0, 0, 0)...)),
		"time overflow": encodeFile(2, raw(bucketHeader{First: b.id, TimeWidth: 6},
			append(append(make([]byte, 6), append(b.id[6:], 0, 0, 0, 0)...), bytes.Repeat([]byte{0xff}, 20)...)...)),
		"index overflow": encodeFile(2, raw(bucketHeader{First: c.id, Base: 1, IndexWidth: 8}, append(append(append(
			append(c.id[6:], make([]byte, 8+4)...), a.id[6:]...), bytes.Repeat([]byte{0xff}, 8)...), 0, 0, 0, 0)...)),
	} {
		_, err := readIDs(bytes.NewReader(file))
		require.ErrorIs(t, err, ErrCorruptIDs, name)
	}
}

// FuzzReadIDs checks that a table which readIDs returns satisfies the invariants, and is equal after it
// was written and read again.
func FuzzReadIDs(f *testing.F) {
	f.Add(encodeView(f, newSmallTable().Snapshot()), uint64(0))
	f.Add(encodeView(f, newIDs().Snapshot()), uint64(0))
	f.Add(encodeBucket(idEntry{id: [16]byte{1}, index: 1}), uint64(1))
	f.Add(encodeBucket(idEntry{id: [16]byte{1}, index: 1}, idEntry{id: [16]byte{2, 15: 3}}), uint64(2))
	f.Fuzz(func(t *testing.T, data []byte, count uint64) {
		for _, file := range [][]byte{data, encodeFile(count, data)} {
			table, err := readIDs(bytes.NewReader(file))
			if err != nil {
				require.ErrorIs(t, err, ErrCorruptIDs)
				continue
			}
			requireInvariants(t, table)
			again, err := readIDs(bytes.NewReader(encodeView(t, table.Snapshot())))
			require.NoError(t, err)
			require.Equal(t, table.Sum(), again.Sum())
		}
	})
}

// TestReadIDs_RejectsDamagedBytes checks that readIDs rejects a truncated table and a table with a flipped bit,
// and does not report an error of the reader as damage.
func TestReadIDs_RejectsDamagedBytes(t *testing.T) {
	whole := encodeView(t, newSmallTable().Snapshot())
	for at := range whole {
		_, err := readIDs(bytes.NewReader(whole[:at]))
		require.ErrorIs(t, err, ErrCorruptIDs, "truncated at %d", at)
		for bit := range 8 {
			bad := bytes.Clone(whole)
			bad[at] ^= 1 << bit
			_, err := readIDs(bytes.NewReader(bad))
			require.ErrorIs(t, err, ErrCorruptIDs, "byte %d, bit %d", at, bit)
		}
	}
	broken := errors.New("broken")
	_, err := readIDs(io.MultiReader(bytes.NewReader(whole[:20]), failingStream{broken}))
	require.ErrorIs(t, err, broken)
	require.NotErrorIs(t, err, ErrCorruptIDs)
}

// TestReadIDs_RejectsExchangedBuckets checks that readIDs rejects a table whose buckets were exchanged,
// removed or repeated.
func TestReadIDs_RejectsExchangedBuckets(t *testing.T) {
	whole := encodeView(t, newTable(12_000, 0).Snapshot())
	const head = len(idsMagic) + 8
	length := func(at int) int {
		var h bucketHeader
		n, err := binary.Decode(whole[at:], binary.BigEndian, &h)
		require.NoError(t, err)
		return n + maxEntries*h.entrySize()
	}
	one, two := length(head), length(head+length(head))
	a, b, rest := whole[head:head+one], whole[head+one:head+one+two], whole[head+one+two:]
	for _, bad := range [][][]byte{{b, a, rest}, {b, rest}, {a, rest}, {a, a, b, rest}} {
		_, err := readIDs(io.MultiReader(bytes.NewReader(whole[:head]), bytes.NewReader(bytes.Join(bad, nil))))
		require.ErrorIs(t, err, ErrCorruptIDs)
	}
	_, err := readIDs(bytes.NewReader(whole))
	require.NoError(t, err)
}

// TestReadIDs_LeavesFollowingBytesUnread checks that readIDs does not read beyond the table, so that
// other data can follow.
func TestReadIDs_LeavesFollowingBytesUnread(t *testing.T) {
	r := io.MultiReader(bytes.NewReader(encodeView(t, newSmallTable().Snapshot())), bytes.NewReader([]byte("next")))
	_, err := readIDs(r)
	require.NoError(t, err)
	rest, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, "next", string(rest))
}

// failingStream is a reader and writer that returns an error from every read and write.
type failingStream struct{ err error }

func (f failingStream) Read([]byte) (int, error)  { return 0, f.err }
func (f failingStream) Write([]byte) (int, error) { return 0, f.err }

// TestIDsView_WriteToReturnsErrorOfWriter checks that WriteTo returns the error of its writer.
func TestIDsView_WriteToReturnsErrorOfWriter(t *testing.T) {
	broken := errors.New("broken")
	_, err := newTable(10_000, 0).Snapshot().WriteTo(failingStream{broken})
	require.ErrorIs(t, err, broken)
}
