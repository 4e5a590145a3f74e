package filelog

import "sort"

// termRun is a sequence of entries with the same term, which begins at the index first.
type termRun struct{ first, term uint64 }

// termRuns contains the terms of all entries of a log, in the order of the indexes. Terms do not
// decrease and seldom change, so a log has only a few runs.
type termRuns []termRun

// truncate returns the runs without the entries with the given index and all later ones.
func (r termRuns) truncate(index uint64) termRuns {
	for len(r) > 0 && r[len(r)-1].first >= index {
		r = r[:len(r)-1]
	}
	return r
}

// add returns the runs with one more entry. The index is one more than the index of the last entry.
func (r termRuns) add(index, term uint64) termRuns {
	if len(r) > 0 && r[len(r)-1].term == term {
		return r
	}
	return append(r, termRun{index, term})
}

// termAt returns the term of the entry at index, which must not be less than the index of the first
// entry.
func (r termRuns) termAt(index uint64) uint64 {
	return r[sort.Search(len(r), func(i int) bool { return r[i].first > index })-1].term
}

// dropBefore returns the runs without the entries before index.
func (r termRuns) dropBefore(index uint64) termRuns {
	n := 0
	for n+1 < len(r) && r[n+1].first <= index {
		n++
	}
	return append(termRuns(nil), r[n:]...)
}
