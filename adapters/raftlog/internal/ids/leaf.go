// This file packs entries: IDs that are neighbours begin alike, and indexes of one time are
// near to each other, so a leaf keeps what its entries share once.

package ids

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// maxData is how many bytes a leaf's entries may take. Larger leaves waste less and are
// slower to insert into.
const maxData = 6144

// leaf is a sorted run of entries, at least one. Each is the bytes of its ID after the
// shared ones, the last bytes of its index, and its sum: all of the same length.
type leaf struct {
	edition uint64
	min     uint64 // the smallest index
	high    uint64 // the index of one of the entries; all share what is above wide bytes
	n       int
	data    []byte
	head    requestid.ID // the ID of one of the entries; all share the first bytes
	shared  uint8
	wide    uint8
}

func newLeaf(edition uint64, e entry) *leaf {
	l := &leaf{edition: edition, min: math.MaxUint64, head: e.id, high: e.index, shared: uint8(len(e.id))}
	l.insert(0, e)
	return l
}

func (l *leaf) clone(edition uint64) *leaf {
	c := *l
	c.edition, c.data = edition, room(len(l.data), len(l.data)+l.stride())
	copy(c.data, l.data)
	return &c
}

// room returns size bytes with a capacity of what an allocation for want gives: rounded up
// by the allocator, by little.
func room(size, want int) []byte { return slices.Grow([]byte(nil), want)[:size] }

func (l *leaf) stride() int { return len(l.head) - int(l.shared) + int(l.wide) + 4 }

// search returns where id is, or belongs.
func (l *leaf) search(id requestid.ID) (at int, found bool) {
	if c := bytes.Compare(id[:l.shared], l.head[:l.shared]); c < 0 {
		return 0, false
	} else if c > 0 {
		return l.n, false
	}
	rest, stride := id[l.shared:], l.stride()
	lo, hi := 0, l.n // all before lo are below id, all from hi on are not
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		switch bytes.Compare(l.data[mid*stride:][:len(rest)], rest) {
		case 0:
			return mid, true
		case -1:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return lo, false
}

func (l *leaf) entry(i int) entry {
	b := l.data[i*l.stride():][:l.stride()]
	e := entry{id: l.head, index: l.index(i), sum: binary.LittleEndian.Uint32(b[len(b)-4:])}
	copy(e.id[l.shared:], b)
	return e
}

func (l *leaf) index(i int) uint64 {
	at := i*l.stride() + len(l.head) - int(l.shared)
	index := l.high &^ (1<<(8*l.wide) - 1) // a shift by 64 gives 0, and nothing is shared
	for k, b := range l.data[at : at+int(l.wide)] {
		index |= uint64(b) << (8 * k)
	}
	return index
}

func (l *leaf) put(i int, e entry) {
	b := l.data[i*l.stride():][:l.stride()]
	at := copy(b, e.id[l.shared:])
	for k := range int(l.wide) {
		b[at+k] = byte(e.index >> (8 * k))
	}
	binary.LittleEndian.PutUint32(b[at+int(l.wide):], e.sum)
}

// sharedWith returns how many bytes of the ID and of the index the entries have in common
// and not, if e is one of them.
func (l *leaf) sharedWith(e entry) (shared, wide uint8) {
	for shared < l.shared && e.id[shared] == l.head[shared] {
		shared++
	}
	wide = l.wide
	for wide < 8 && e.index>>(8*wide) != l.high>>(8*wide) {
		wide++
	}
	return shared, wide
}

// fits tells whether the leaf may have e as well. A leaf of one entry takes any.
func (l *leaf) fits(e entry) bool {
	shared, wide := l.sharedWith(e)
	return (l.n+1)*(len(e.id)-int(shared)+int(wide)+4) <= maxData
}

// insert puts e before the i-th entry.
func (l *leaf) insert(i int, e entry) {
	if shared, wide := l.sharedWith(e); shared < l.shared || wide > l.wide {
		*l = *l.pack(l.edition, 0, l.n, entry{id: l.head, index: l.high}, shared, wide)
	}
	stride, size := l.stride(), len(l.data)
	if size+stride > cap(l.data) {
		grown := room(size, size+stride)
		copy(grown, l.data)
		l.data = grown
	}
	l.data = l.data[:size+stride]
	copy(l.data[(i+1)*stride:], l.data[i*stride:size])
	l.n++
	l.min = min(l.min, e.index)
	l.put(i, e)
}

// pack returns the entries from one to another as a leaf of its own, with room for one more.
// They share with the entry like as much as is said.
func (l *leaf) pack(edition uint64, from, to int, like entry, shared, wide uint8) *leaf {
	p := &leaf{
		edition: edition, min: math.MaxUint64, head: like.id, high: like.index,
		n: to - from, shared: shared, wide: wide,
	}
	p.data = room(p.n*p.stride(), (p.n+1)*p.stride())
	for i := range p.n {
		e := l.entry(from + i)
		p.put(i, e)
		p.min = min(p.min, e.index)
	}
	return p
}

// part returns the entries from one to another as a leaf that shares as much as they do.
func (l *leaf) part(edition uint64, from, to int) *leaf {
	first := l.entry(from)
	as := leaf{head: first.id, high: first.index, shared: uint8(len(first.id))}
	as.shared, _ = as.sharedWith(l.entry(to - 1)) // those between share as much
	for i := from; i < to; i++ {
		_, as.wide = as.sharedWith(entry{index: l.index(i)})
	}
	return l.pack(edition, from, to, first, as.shared, as.wide)
}

// split returns the two halves.
func (l *leaf) split(edition uint64) (left, right *leaf) {
	return l.part(edition, 0, l.n/2), l.part(edition, l.n/2, l.n)
}
