package replica

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// maxRecent is the number of recent entries at which the table moves the first maxEntries of them into
// buckets. The other entries remain recent, so that an ID that arrives a little after newer IDs can be
// inserted without changing a bucket.
const maxRecent = maxEntries + 256

// idEntry is a request ID with the index and the CRC32C of its update.
type idEntry struct {
	id    api.RequestID
	index uint64
	sum   uint32
}

func compareID(e idEntry, id api.RequestID) int { return bytes.Compare(e.id[:], id[:]) }

// isLess returns the same as bytes.Compare(a[:], b[:]) < 0, but is faster.
func isLess(a, b *api.RequestID) bool {
	x, y := binary.BigEndian.Uint64(a[:8]), binary.BigEndian.Uint64(b[:8])
	if x == y {
		x, y = binary.BigEndian.Uint64(a[8:]), binary.BigEndian.Uint64(b[8:])
	}
	return x < y
}

// IDs is the table of the request IDs that a log has applied, each with the index of its entry and the
// CRC32C of its data. The log uses it to recognize retried updates. An IDs must not be used
// concurrently, but its views may be.
//
// Each peer stores all IDs of the deduplication window, which is hours long, in memory: 19 to 24 bytes
// per ID. A Go map takes more than 45. Each snapshot contains the table, and is written while updates
// are applied. Therefore the IDs are in immutable, sorted buckets, except for a few recent IDs. An
// [IDsView] shares the buckets with the table.
//
// The results of all methods depend only on the calls of Insert and Expire, not on the arrangement of
// the buckets.
type IDs struct {
	buckets []*bucket // the buckets in the order of their IDs; none is empty
	recent  []idEntry // the entries that are not in a bucket yet, in the order of their IDs
	len     int

	oldest      uint64 // the smallest index of all entries; undefined if oldestKnown is false
	oldestKnown bool   // whether oldest is valid: false from a removal of entries until oldest is computed again
}

// newIDs returns an empty table of request IDs.
func newIDs() *IDs { return &IDs{} }

// bucketOf returns the position of the bucket to which id belongs: the last bucket that does not start
// after id, or the first bucket if all of them start later.
func (t *IDs) bucketOf(id api.RequestID) int {
	startsBefore := func(b *bucket) bool { return bytes.Compare(b.First[:], id[:]) <= 0 }
	if last := len(t.buckets) - 1; last < 0 || startsBefore(t.buckets[last]) {
		return max(last, 0) // try the last bucket first, because most IDs are new
	}
	return max(sort.Search(len(t.buckets), func(i int) bool { return !startsBefore(t.buckets[i]) })-1, 0)
}

// searchRecent returns the position of id in the recent entries, and whether they contain id. If they
// do not, the position is where id would be inserted.
func (t *IDs) searchRecent(id *api.RequestID) (at int, found bool) {
	at = sort.Search(len(t.recent), func(i int) bool { return !isLess(&t.recent[i].id, id) })
	return at, at < len(t.recent) && t.recent[at].id == *id
}

// searchBuckets returns the entry with the given ID, and whether a bucket contains such an entry.
func (t *IDs) searchBuckets(id *api.RequestID) (e idEntry, found bool) {
	if len(t.buckets) == 0 {
		return idEntry{}, false
	}
	b := t.buckets[t.bucketOf(*id)]
	at, found := b.search(*id)
	if found {
		e = b.entry(at)
	}
	return e, found
}

// Lookup returns the index and the sum that were inserted with id, and false if the table does not
// contain id.
func (t *IDs) Lookup(id api.RequestID) (index uint64, sum uint32, ok bool) {
	if at, found := t.searchRecent(&id); found {
		return t.recent[at].index, t.recent[at].sum, true
	}
	e, found := t.searchBuckets(&id)
	return e.index, e.sum, found
}

// Insert adds id to the table. If the table already contains id, it keeps the previous index and sum.
// The time of the ID and the index may have any value. The table uses least memory if the indexes
// increase with the times.
func (t *IDs) Insert(id api.RequestID, index uint64, sum uint32) {
	at, known := t.searchRecent(&id)
	if !known {
		_, known = t.searchBuckets(&id)
	}
	if known {
		return
	}
	t.recent = slices.Insert(t.recent, at, idEntry{id, index, sum})
	t.len++
	switch {
	case t.len == 1:
		t.oldest, t.oldestKnown = index, true
	case t.oldestKnown:
		t.oldest = min(t.oldest, index)
	}
	if len(t.recent) >= maxRecent {
		t.sealEntries(maxEntries)
	}
}

// sealEntries moves the first count of the recent entries into buckets.
func (t *IDs) sealEntries(count int) {
	for rest := t.recent[:count]; len(rest) > 0; {
		i, n := t.bucketOf(rest[0].id), len(rest)
		last := i+1 >= len(t.buckets)
		if !last {
			n, _ = slices.BinarySearchFunc(rest, t.buckets[i+1].First, compareID)
		}
		old := t.buckets[i:min(i+1, len(t.buckets))] // old is empty if the table has no buckets
		t.buckets = slices.Replace(t.buckets, i, i+len(old), mergeIntoBuckets(old, rest[:n], last)...)
		rest = rest[n:]
	}
	t.recent = slices.Delete(t.recent, 0, count)
}

// mergeIntoBuckets returns buckets that contain the entries of old, which has at most one bucket, and the entries
// more. last reports whether later IDs are likely to be inserted after all of these.
func mergeIntoBuckets(old []*bucket, more []idEntry, last bool) (packed []*bucket) {
	var all []idEntry
	for _, b := range old {
		if b.len() == maxEntries && compareID(b.lastEntry(), more[0].id) < 0 {
			packed = append(packed, b) // keep the full bucket, because the new entries follow it
			break
		}
		if with, ok := b.withEntries(more); ok {
			return []*bucket{with}
		}
		for i := range b.len() {
			e := b.entry(i)
			for len(more) > 0 && compareID(more[0], e.id) < 0 {
				all, more = append(all, more[0]), more[1:]
			}
			all = append(all, e)
		}
	}
	all = append(all, more...)
	size := maxEntries
	if !last {
		parts := (len(all) + maxEntries - 1) / maxEntries
		size = (len(all) + parts - 1) / parts
	}
	for part := range slices.Chunk(all, size) {
		packed = append(packed, newBucket(part))
	}
	return packed
}

// Expire removes all IDs whose time is before the given time.
func (t *IDs) Expire(before time.Time) {
	expired, was := 0, t.len
	for _, b := range t.buckets {
		n := b.countExpired(before)
		t.len -= n
		if n < b.len() {
			if n > 0 {
				t.buckets[expired] = b.suffixFrom(n)
			}
			break
		}
		expired++
	}
	t.buckets = slices.Delete(t.buckets, 0, expired)
	n := 0
	for n < len(t.recent) && t.recent[n].id.Time().Before(before) {
		n++
	}
	t.len -= n
	t.recent = slices.Delete(t.recent, 0, n)
	if t.len != was {
		t.oldestKnown = false
	}
}

// Len returns the number of IDs in the table.
func (t *IDs) Len() int { return t.len }

// OldestIndex returns the smallest index of all IDs in the table, and false if the table is empty.
func (t *IDs) OldestIndex() (uint64, bool) {
	if !t.oldestKnown {
		t.oldest, t.oldestKnown = math.MaxUint64, true
		for _, b := range t.buckets {
			t.oldest = min(t.oldest, b.oldest)
		}
		for _, e := range t.recent {
			t.oldest = min(t.oldest, e.index)
		}
	}
	return t.oldest, t.len > 0
}

// Sum returns a checksum of all IDs, indexes and sums in the table. It reads the whole table.
func (t *IDs) Sum() uint64 { return t.Snapshot().Sum() }

// Snapshot returns a view of the current content of the table. It copies one pointer per bucket, and no
// IDs. While the view is in use, buckets that the table replaces stay in memory.
func (t *IDs) Snapshot() *IDsView {
	t.sealEntries(len(t.recent))
	return &IDsView{slices.Clone(t.buckets), t.len}
}

// IDsView is the content of a table of IDs at one moment. Several goroutines may use it, even while the
// table changes.
type IDsView struct {
	buckets []*bucket
	len     int
}

// Len returns the number of IDs in the view.
func (v *IDsView) Len() int { return v.len }

// Sum returns the checksum that IDs.Sum returned when the view was created.
func (v *IDsView) Sum() uint64 {
	h := sha256.New()
	v.WriteTo(h)
	return binary.BigEndian.Uint64(h.Sum(nil))
}
