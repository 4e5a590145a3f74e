package contender

import (
	"cmp"
	"slices"
	"strings"
)

// Order sorts the children of a queue: its contenders, the head of the queue first, and all
// other children. tombstone is the name of the child that marks the queue as ended; it is in
// neither, and ended reports whether it exists. A contender whose name is not [Recognized] is a
// contender only if its znode is ephemeral.
func Order(children []string, tombstone string) (contenders, others []string, ended bool) {
	type contender struct {
		name     string
		sequence int32
	}
	var found []contender
	for _, name := range children {
		sequence, ok := sequenceOfAny(name)
		switch {
		case ok:
			found = append(found, contender{name, sequence})
		case name == tombstone:
			ended = true
		default:
			others = append(others, name)
		}
	}
	slices.SortFunc(found, func(a, b contender) int {
		switch {
		case a.sequence == b.sequence:
			return cmp.Compare(a.name, b.name)
		case IsBefore(a.sequence, b.sequence):
			return -1
		}
		return 1
	})
	for _, c := range found {
		contenders = append(contenders, c.name)
	}
	return contenders, others, ended
}

// neighbors is the part of a listing that matters to one contender. It is determined in one
// pass, because queues of thousands are listed whenever a contender joins.
type neighbors struct {
	present     bool     // the contender's znode exists
	predecessor string   // the last of the earlier contenders that block it, or empty
	before      string   // the last but one of them, or empty
	blocking    int      // the number of earlier contenders that block it
	twins       []string // znodes with the same sequence number
	orphans     []string // further znodes of this contender, left by creates without a reply
	ended       bool     // the tombstone exists
}

// view determines how a contender interprets a listing.
type view struct {
	// known excludes contenders whose names no known library assigns.
	known     bool
	prefixes  []string // of all znodes that this contender may have created
	tombstone string
	// blocks reports whether an earlier contender must be waited for; nil means all.
	blocks func(name string) bool
	// ignored are children that are named like contenders but are not contenders, sorted.
	ignored []string
}

// neighborsOf evaluates a listing for the contender own.
func (v *view) neighborsOf(own string, children []string) neighbors {
	number := sequenceOfAny
	if v.known {
		number = Sequence
	}
	var n neighbors
	ownSequence, _ := number(own)
	var last, lastButOne int32 // distances, which are negative
	for _, name := range children {
		if name == own {
			n.present = true
			continue
		}
		sequence, ok := number(name)
		switch {
		case HasAnyPrefix(name, v.prefixes):
			n.orphans = append(n.orphans, name)
			continue
		case !ok:
			n.ended = n.ended || v.tombstone != "" && name == v.tombstone
			continue
		case v.ignores(name):
			continue
		}
		distance := sequence - ownSequence
		if distance >= 0 {
			if distance == 0 {
				n.twins = append(n.twins, name)
			}
			continue
		}
		if v.blocks != nil && !v.blocks(name) {
			continue
		}
		n.blocking++
		switch {
		case n.blocking == 1 || distance > last:
			n.before, lastButOne = n.predecessor, last
			n.predecessor, last = name, distance
		case n.before == "" || distance > lastButOne:
			n.before, lastButOne = name, distance
		}
	}
	return n
}

func (v *view) ignores(name string) bool {
	_, found := slices.BinarySearch(v.ignored, name)
	return found
}

// unverified returns the predecessor of the contender own and the children before it, the last one
// first, up to the first one whose znode does not have to be inspected.
func (v *view) unverified(own, predecessor string, children []string, mustInspect func(name string) bool) []string {
	names := []string{predecessor}
	ordered, _, _ := Order(children, v.tombstone)
	for _, name := range slices.Backward(ordered[:max(0, slices.Index(ordered, own))]) {
		switch {
		case name == predecessor, isTwin(name, own), HasAnyPrefix(name, v.prefixes), v.ignores(name), v.blocks != nil && !v.blocks(name):
		case !mustInspect(name):
			return names
		default:
			names = append(names, name)
		}
	}
	return names
}

// isTwin reports whether two names have the same sequence number.
func isTwin(a, b string) bool {
	x, _ := sequenceOfAny(a)
	y, _ := sequenceOfAny(b)
	return x == y
}

// HasAnyPrefix reports whether name begins with one of prefixes.
func HasAnyPrefix(name string, prefixes []string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
