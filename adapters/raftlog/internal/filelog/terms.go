package filelog

// Terms of entries: they grow with the index and seldom change, so that it is enough to know
// where each begins.

import "sort"

type run struct{ first, term uint64 }

type runs []run

// cut forgets the terms of entries from index on.
func (r runs) cut(index uint64) runs {
	for len(r) > 0 && r[len(r)-1].first >= index {
		r = r[:len(r)-1]
	}
	return r
}

// add is the next entry's term.
func (r runs) add(index, term uint64) runs {
	if len(r) > 0 && r[len(r)-1].term == term {
		return r
	}
	return append(r, run{index, term})
}

// term is that of the entry at index, which must not be before the first run.
func (r runs) term(index uint64) uint64 {
	return r[sort.Search(len(r), func(i int) bool { return r[i].first > index })-1].term
}

// drop forgets the terms of entries before index.
func (r runs) drop(index uint64) runs {
	n := 0
	for n+1 < len(r) && r[n+1].first <= index {
		n++
	}
	return append(runs(nil), r[n:]...)
}
