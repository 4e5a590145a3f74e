package line

import (
	"cmp"
	"slices"
	"strings"
)

// Order sorts what a listing of a line returned: its contenders, first in line
// first, and the rest. The marker that ends a line is in neither, ended tells
// of it. A contender that is not Recognized is one only if its znode is ephemeral.
func Order(children []string, endMarker string) (contenders, foreign []string, ended bool) {
	type contender struct {
		name     string
		sequence int32
	}
	var found []contender
	for _, name := range children {
		sequence, ok := numberOf(name)
		switch {
		case ok:
			found = append(found, contender{name, sequence})
		case name == endMarker:
			ended = true
		default:
			foreign = append(foreign, name)
		}
	}
	slices.SortFunc(found, func(a, b contender) int {
		switch {
		case a.sequence == b.sequence:
			return cmp.Compare(a.name, b.name)
		case before(a.sequence, b.sequence):
			return -1
		}
		return 1
	})
	for _, c := range found {
		contenders = append(contenders, c.name)
	}
	return contenders, foreign, ended
}

// surroundings is what one contender needs to know of a listing. It is found
// in one pass: a line of thousands is read whenever somebody joins. prefixes
// are the names, up to the sequence number, that the candidacy has created.
type surroundings struct {
	listed      bool // false when concluded without a listing
	present     bool
	predecessor string   // the last of those ahead that block; "" when first
	isSecond    bool     // the predecessor is the only one that blocks
	follower    string   // directly behind, "" for none
	twin        string   // a znode with the same number, "" if there is none
	strays      []string // other znodes of the same candidacy
	ended       bool
}

// view is how a contender reads a listing.
type view struct {
	// libraries leaves out contenders that no known library has named.
	libraries bool
	prefixes  []string // of all znodes of the own candidacy
	endMarker string
	// blocks reports whether a contender ahead must be waited for; nil for all.
	blocks func(string) bool
	// absent contains children that are named like contenders and are not.
	absent map[string]bool
}

// surroundingsOf looks around own in a listing.
func (v view) surroundingsOf(own string, children []string) surroundings {
	number := numberOf
	if v.libraries {
		number = sequenceOf
	}
	s := surroundings{listed: true}
	ownSequence, _ := number(own)
	var ahead, behind int32 // distances of predecessor and follower
	count := 0
	for _, name := range children {
		if name == own {
			s.present = true
			continue
		}
		sequence, ok := number(name)
		switch {
		case hasAnyPrefix(name, v.prefixes):
			s.strays = append(s.strays, name)
			continue
		case !ok:
			s.ended = s.ended || v.endMarker != "" && name == v.endMarker
			continue
		case v.absent[name]:
			continue
		}
		distance := sequence - ownSequence
		if distance == 0 {
			s.twin = name
		}
		if distance < 0 {
			if v.blocks != nil && !v.blocks(name) {
				continue
			}
			count++
			if s.predecessor == "" || distance > ahead {
				s.predecessor, ahead = name, distance
			}
		} else if s.follower == "" || distance < behind {
			s.follower, behind = name, distance
		}
	}
	s.isSecond = count == 1
	return s
}

func hasAnyPrefix(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}
