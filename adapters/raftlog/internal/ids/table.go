// Package ids remembers which request IDs a log has applied, so that an update that is
// repeated is answered and not applied again.
//
// It has to hold every ID that is still fresh, of hours, in the memory of every peer: 19 to
// 24 bytes an ID, where a Go map takes more than 45. And it has to be written into snapshots
// while updates go on. So the IDs lie sorted in small leaves of packed bytes, which a
// [View] shares with the table and which the table copies before it changes them.
//
// What can be seen of a table depends on nothing but the calls of Insert and Expire.
package ids

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// Table is the IDs that are remembered, each with the index of its entry and the CRC32C of
// its data. One goroutine at a time may use it; its Views are free.
type Table struct {
	tree
	// edition grows with every View. Pages and leaves of earlier editions belong to a View
	// as well and are not written to.
	edition uint64
}

// New returns an empty table.
func New() *Table { return &Table{edition: 1} }

// Lookup returns the index and the sum with which id was inserted; ok is false if id is not
// remembered.
func (t *Table) Lookup(id requestid.ID) (index uint64, sum uint32, ok bool) {
	if len(t.pages) == 0 {
		return 0, 0, false
	}
	p := t.pages[child(t.firsts, id)]
	l := p.leaves[child(p.firsts, id)]
	i, ok := l.search(id)
	if !ok {
		return 0, 0, false
	}
	e := l.entry(i)
	return e.index, e.sum, true
}

// Insert remembers id. An ID that is remembered already keeps the index and the sum that it
// has. Any time in the ID and any index are taken; memory is the least if indexes grow.
func (t *Table) Insert(id requestid.ID, index uint64, sum uint32) {
	t.insert(entry{id, index, sum})
}

// Expire forgets the IDs whose Time is before that, to the millisecond that an ID's time
// has: an ID of exactly that time stays.
func (t *Table) Expire(before time.Time) {
	if limit, all := limitOf(before); all {
		t.tree = tree{}
	} else {
		t.expire(limit)
	}
}

// limitOf returns the smallest ID that is not before that time; all says that there is none.
func limitOf(before time.Time) (limit requestid.ID, all bool) {
	const end = int64(1) << 48 // ms
	if !before.After(time.UnixMilli(0)) {
		return limit, false
	}
	if before.After(time.UnixMilli(end - 1)) {
		return limit, true
	}
	ms := before.UnixMilli()
	if before.After(time.UnixMilli(ms)) { // not a whole millisecond
		ms++
	}
	if ms == end {
		return limit, true
	}
	var wide [8]byte
	binary.BigEndian.PutUint64(wide[:], uint64(ms))
	copy(limit[:6], wide[2:])
	return limit, false
}

// Len is how many IDs are remembered.
func (t *Table) Len() int { return t.len }

// OldestIndex returns the smallest index among the IDs that are remembered, and false if
// there are none.
func (t *Table) OldestIndex() (uint64, bool) {
	if len(t.pages) == 0 {
		return 0, false
	}
	return slices.MinFunc(t.pages, func(a, b *page) int { return compareIndex(a.min, b.min) }).min, true
}

// Sum is the same for tables with the same IDs, indexes and sums, whatever way these came
// there, and practically never for others. It reads the whole table.
func (t *Table) Sum() uint64 { return t.sum() }

// Snapshot returns the table as it is now. That is cheap: nothing of the IDs is copied.
// Later each leaf is copied before it is first changed, so a View that is kept while all
// IDs are replaced keeps all the old ones in memory.
func (t *Table) Snapshot() *View {
	t.edition++
	return &View{tree{slices.Clone(t.firsts), slices.Clone(t.pages), t.len}}
}

// View is a table at a point in time. Any goroutines may use it while the table goes on.
type View struct{ tree }

// Len is how many IDs are in it.
func (v *View) Len() int { return v.len }

// Sum is what the table's Sum was.
func (v *View) Sum() uint64 { return v.sum() }
