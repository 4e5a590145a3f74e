// This file arranges the leaves: two levels above them are enough, for a page has hundreds
// of leaves and the root may have thousands of pages.

package ids

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// entry is one ID that is remembered.
type entry struct {
	id    requestid.ID
	index uint64
	sum   uint32
}

// tree holds entries in the order of their IDs, which is the order of their times.
// Everything in pages[i] is below firsts[i+1], and not below firsts[i] unless i is 0. No
// page and no leaf is empty.
type tree struct {
	firsts []requestid.ID
	pages  []*page
	len    int
}

// page is a run of leaves, bounded by firsts as the pages of a tree are.
type page struct {
	edition uint64
	firsts  []requestid.ID
	leaves  []*leaf
	len     int
	min     uint64 // the smallest index
}

const maxLeaves = 256 // of a page

// child returns the number of the page or leaf where id belongs.
func child(firsts []requestid.ID, id requestid.ID) int {
	lo, hi := 0, len(firsts) // all before lo are <= id, all from hi on are above
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if bytes.Compare(firsts[mid][:], id[:]) <= 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return max(lo-1, 0)
}

func compareIndex(a, b uint64) int { return cmp.Compare(a, b) }

func (t *Table) insert(e entry) {
	if len(t.pages) == 0 {
		t.firsts, t.pages = []requestid.ID{e.id}, []*page{{edition: t.edition, min: math.MaxUint64}}
	}
	i := child(t.firsts, e.id)
	p := t.pages[i]
	if len(p.leaves) == 0 {
		p.firsts, p.leaves = []requestid.ID{e.id}, []*leaf{newLeaf(t.edition, e)}
	} else if !t.insertLeaf(i, e) {
		return
	}
	p = t.pages[i]
	p.len++
	p.min = min(p.min, e.index)
	t.len++
	if len(p.leaves) > maxLeaves {
		t.splitPage(i)
	}
}

// insertLeaf puts e into a leaf of the i-th page, unless its ID is there.
func (t *Table) insertLeaf(i int, e entry) bool {
	k := child(t.pages[i].firsts, e.id)
	at, known := t.pages[i].leaves[k].search(e.id)
	if known {
		return false
	}
	p := t.ownPage(i)
	for !p.leaves[k].fits(e) {
		l := p.leaves[k]
		if last := i == len(t.pages)-1 && k == len(p.leaves)-1; last && at == l.n {
			// IDs come about in the order of their times: leave a full leaf behind.
			p.add(k+1, newLeaf(t.edition, e))
			return true
		}
		left, right := l.split(t.edition)
		p.leaves[k] = left
		p.add(k+1, right)
		if at > left.n {
			k, at = k+1, at-left.n
		}
	}
	t.ownLeaf(p, k).insert(at, e)
	return true
}

func (p *page) add(k int, l *leaf) {
	p.firsts = slices.Insert(p.firsts, k, l.entry(0).id)
	p.leaves = slices.Insert(p.leaves, k, l)
}

// ownPage returns the i-th page for writing: no View has it.
func (t *Table) ownPage(i int) *page {
	p := t.pages[i]
	if p.edition != t.edition {
		p = &page{t.edition, slices.Clone(p.firsts), slices.Clone(p.leaves), p.len, p.min}
		t.pages[i] = p
	}
	return p
}

// ownLeaf returns the k-th leaf of a page of the table's own for writing.
func (t *Table) ownLeaf(p *page, k int) *leaf {
	l := p.leaves[k]
	if l.edition != t.edition {
		l = l.clone(t.edition)
		p.leaves[k] = l
	}
	return l
}

// splitPage makes two of the i-th page, which the table owns.
func (t *Table) splitPage(i int) {
	p := t.pages[i]
	half := len(p.leaves) / 2
	if i == len(t.pages)-1 {
		half = len(p.leaves) - 1 // the next ones come there
	}
	// Cloned, so that neither keeps the other's memory.
	q := &page{edition: t.edition, firsts: slices.Clone(p.firsts[half:]), leaves: slices.Clone(p.leaves[half:])}
	p.firsts, p.leaves = slices.Clone(p.firsts[:half]), slices.Clone(p.leaves[:half])
	p.count()
	q.count()
	t.firsts = slices.Insert(t.firsts, i+1, q.firsts[0])
	t.pages = slices.Insert(t.pages, i+1, q)
}

// count sets len and min by the leaves.
func (p *page) count() {
	p.len, p.min = 0, math.MaxUint64
	for _, l := range p.leaves {
		p.len += l.n
		p.min = min(p.min, l.min)
	}
}

// expire forgets the IDs below limit.
func (t *Table) expire(limit requestid.ID) {
	drop := before(t.firsts, limit)
	for _, p := range t.pages[:drop] {
		t.len -= p.len
	}
	t.firsts, t.pages = slices.Delete(t.firsts, 0, drop), slices.Delete(t.pages, 0, drop)
	if len(t.pages) == 0 {
		return
	}
	p := t.pages[0]
	drop = before(p.firsts, limit)
	below, _ := p.leaves[drop].search(limit)
	if drop == 0 && below == 0 {
		return
	}
	p = t.ownPage(0)
	t.len -= p.len
	if below == p.leaves[drop].n {
		drop++
	} else if below > 0 {
		p.leaves[drop] = p.leaves[drop].part(t.edition, below, p.leaves[drop].n)
	}
	p.firsts, p.leaves = slices.Delete(p.firsts, 0, drop), slices.Delete(p.leaves, 0, drop)
	p.count()
	t.len += p.len
	if len(p.leaves) == 0 {
		t.firsts, t.pages = slices.Delete(t.firsts, 0, 1), slices.Delete(t.pages, 0, 1)
	}
}

// before returns how many of the pages or leaves, from the first on, are surely below limit
// as a whole: those with a next one that begins at limit or below it.
func before(firsts []requestid.ID, limit requestid.ID) int { return child(firsts, limit) }

// all calls do with every entry, in order.
func (t *tree) all(do func(entry) error) error {
	for _, p := range t.pages {
		for _, l := range p.leaves {
			for i := range l.n {
				if err := do(l.entry(i)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (t *tree) sum() uint64 {
	h := sha256.New()
	block := make([]byte, 0, 4096+28)
	t.all(func(e entry) error {
		block = append(block, e.id[:]...)
		block = binary.BigEndian.AppendUint64(block, e.index)
		block = binary.BigEndian.AppendUint32(block, e.sum)
		if len(block) >= 4096 {
			h.Write(block)
			block = block[:0]
		}
		return nil
	})
	h.Write(block)
	return binary.BigEndian.Uint64(h.Sum(nil))
}
