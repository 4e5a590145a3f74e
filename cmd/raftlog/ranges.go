package main

import (
	"math"
	"strconv"
	"strings"
)

// ranges is a set of indexes, such as 1-10,20,30-. The empty list contains all indexes.
type ranges []struct{ from, to uint64 }

func (r ranges) contains(index uint64) bool {
	for _, s := range r {
		if s.from <= index && index <= s.to {
			return true
		}
	}
	return len(r) == 0
}

func parseRanges(text string) (r ranges, err error) {
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := strconv.ParseUint(first, 10, 64)
		to := from
		if err == nil && isRange {
			if to = math.MaxUint64; last != "" {
				to, err = strconv.ParseUint(last, 10, 64)
			}
		}
		if err != nil || from == 0 || to < from {
			return nil, newUsageError("--index %q: %q is not a range; an example is 1-10,20,30-", text, part)
		}
		r = append(r, struct{ from, to uint64 }{from, to})
	}
	return r, nil
}
