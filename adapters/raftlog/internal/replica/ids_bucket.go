package replica

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"sort"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// maxEntries is the maximum number of entries in a bucket. Larger buckets would take a little less
// memory, but inserting into them would take more time.
const maxEntries = 512

const (
	timeBytes = 6 // an ID begins with its time in milliseconds
	sumBytes  = 4
)

// bucket contains at least one entry, sorted by ID. It is immutable.
//
// All entries of a bucket have the same size. Instead of times and indexes, they contain differences,
// with as few bytes as possible. An entry consists of the time of its ID less the time of First
// (big-endian, TimeWidth bytes), the other 10 bytes of the ID, the index less Base (big-endian,
// IndexWidth bytes), and the sum (big-endian).
type bucket struct {
	bucketHeader
	oldest uint64 // the smallest index of all entries in the bucket
	data   []byte
}

// bucketHeader contains the parameters by which the entries of a bucket are encoded. Its fields are
// exported for encoding/binary.
type bucketHeader struct {
	First                 api.RequestID // at most the first ID; its time is subtracted from all times
	Base                  uint64        // at most the smallest index; it is subtracted from all indexes
	TimeWidth, IndexWidth uint8
}

// keySize returns the size of an ID in an encoded entry, and entrySize returns the size of the whole
// encoded entry.
func (h *bucketHeader) keySize() int   { return int(h.TimeWidth) + len(h.First) - timeBytes }
func (h *bucketHeader) entrySize() int { return h.keySize() + int(h.IndexWidth) + sumBytes }

func millisOf(id api.RequestID) uint64 { return binary.BigEndian.Uint64(id[:8]) >> 16 }

// addMillis returns id with ms added to its time, modulo 2^48: adding -ms subtracts ms.
func addMillis(id api.RequestID, ms uint64) api.RequestID {
	binary.BigEndian.PutUint64(id[:8], binary.BigEndian.Uint64(id[:8])+ms<<16)
	return id
}

// byteWidth returns the number of bytes that are needed to encode n.
func byteWidth(n uint64) uint8 { return uint8((bits.Len64(n) + 7) / 8) }

// newBucket returns a bucket with the given sorted entries. Equal entries result in equal buckets.
func newBucket(entries []idEntry) *bucket {
	first, last := entries[0], entries[len(entries)-1]
	oldest, newest := first.index, first.index
	for _, e := range entries {
		oldest, newest = min(oldest, e.index), max(newest, e.index)
	}
	b := &bucket{
		bucketHeader{first.id, oldest, byteWidth(millisOf(last.id) - millisOf(first.id)), byteWidth(newest - oldest)},
		oldest, nil,
	}
	b.data = make([]byte, 0, len(entries)*b.entrySize())
	for _, e := range entries {
		b.add(e)
	}
	return b
}

// add appends an encoded entry to the data of a bucket that is still being created.
func (b *bucket) add(e idEntry) {
	relative := addMillis(e.id, -millisOf(b.First))
	b.data = append(b.data, relative[timeBytes-b.TimeWidth:]...)
	var index [8]byte
	binary.BigEndian.PutUint64(index[:], e.index-b.Base)
	b.data = append(b.data, index[8-b.IndexWidth:]...)
	b.data = binary.BigEndian.AppendUint32(b.data, e.sum)
}

// canContain reports whether a bucket with the header h can encode the entry e.
func (h *bucketHeader) canContain(e idEntry) bool {
	return bytes.Compare(h.First[:], e.id[:]) <= 0 && byteWidth(millisOf(e.id)-millisOf(h.First)) <= h.TimeWidth &&
		h.Base <= e.index && byteWidth(e.index-h.Base) <= h.IndexWidth
}

// withEntries returns a new bucket with the same header that also contains the sorted entries more. It
// returns false if the header cannot encode them, or the bucket would be too large. It copies the entries of
// b without decoding them.
func (b *bucket) withEntries(more []idEntry) (*bucket, bool) {
	if b.len()+len(more) > maxEntries {
		return nil, false
	}
	stride, copied := b.entrySize(), 0
	c := &bucket{b.bucketHeader, b.oldest, make([]byte, 0, len(b.data)+len(more)*stride)}
	for _, e := range more {
		if !b.canContain(e) {
			return nil, false
		}
		at, _ := b.search(e.id)
		c.data = append(c.data, b.data[copied:at*stride]...)
		c.add(e)
		c.oldest = min(c.oldest, e.index)
		copied = at * stride
	}
	c.data = append(c.data, b.data[copied:]...)
	return c, true
}

func (b *bucket) len() int { return len(b.data) / b.entrySize() }

func (b *bucket) key(i int) []byte { return b.data[i*b.entrySize():][:b.keySize()] }

func (b *bucket) id(i int) api.RequestID {
	var relative api.RequestID
	copy(relative[timeBytes-b.TimeWidth:], b.key(i))
	return addMillis(relative, millisOf(b.First))
}

func (b *bucket) index(i int) uint64 {
	index := uint64(0)
	for _, v := range b.data[i*b.entrySize()+b.keySize():][:b.IndexWidth] {
		index = index<<8 | uint64(v)
	}
	return b.Base + index
}

func (b *bucket) entry(i int) idEntry {
	return idEntry{b.id(i), b.index(i), binary.BigEndian.Uint32(b.data[(i+1)*b.entrySize()-sumBytes:])}
}

func (b *bucket) lastEntry() idEntry { return b.entry(b.len() - 1) }

// search returns the position of id in the bucket, and whether the bucket contains id. If it does not,
// the position is where id would be inserted.
func (b *bucket) search(id api.RequestID) (at int, found bool) {
	if bytes.Compare(id[:], b.First[:]) < 0 {
		return 0, false
	}
	relative := addMillis(id, -millisOf(b.First))
	if byteWidth(millisOf(relative)) > b.TimeWidth {
		return b.len(), false
	}
	key, stride := relative[timeBytes-b.TimeWidth:], b.entrySize()
	if bytes.Compare(b.data[len(b.data)-stride:][:len(key)], key) < 0 { // most IDs are newer than all entries
		return b.len(), false
	}
	low, high := 0, b.len() // the entries before low are less than id, and the entries from high on are not
	for low < high {
		middle := (low + high) / 2
		if bytes.Compare(b.data[middle*stride:][:len(key)], key) < 0 {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low, low < b.len() && bytes.Equal(b.key(low), key)
}

// countExpired returns the number of IDs in the bucket whose time is before the given time.
func (b *bucket) countExpired(before time.Time) int {
	if !b.id(0).Time().Before(before) { // usually no ID has expired
		return 0
	}
	return sort.Search(b.len(), func(i int) bool { return !b.id(i).Time().Before(before) })
}

// suffixFrom returns a bucket with the entries from position i on. It shares the memory of b.
func (b *bucket) suffixFrom(i int) *bucket {
	c := &bucket{b.bucketHeader, b.index(i), b.data[i*b.entrySize():]}
	for k := range c.len() {
		c.oldest = min(c.oldest, c.index(k))
	}
	return c
}
