package line

import (
	"cmp"
	"slices"
	"strings"
)

// Order sorts what a listing of a line returned: its contenders, first in line
// first, and the rest. The marker that ends a line is in neither, ended tells
// of it.
func Order(children []string, endMarker string) (contenders, foreign []string, ended bool) {
	type contender struct {
		name     string
		sequence int32
	}
	var found []contender
	for _, name := range children {
		sequence, ok := sequenceOf(name)
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
	strays      []string // other znodes of the same candidacy
	ended       bool
}

// surroundingsOf looks around own in a listing. Those ahead whom blocks does not
// name stand in nobody's way; nil names all.
func surroundingsOf(own string, children, prefixes []string, endMarker string, blocks func(string) bool) surroundings {
	s := surroundings{listed: true}
	ownSequence, _ := sequenceOf(own)
	var ahead, behind int32 // distances of predecessor and follower
	count := 0
	for _, name := range children {
		if name == own {
			s.present = true
			continue
		}
		sequence, ok := sequenceOf(name)
		switch {
		case hasAnyPrefix(name, prefixes):
			s.strays = append(s.strays, name)
			continue
		case !ok:
			s.ended = s.ended || endMarker != "" && name == endMarker
			continue
		}
		if distance := sequence - ownSequence; distance < 0 {
			if blocks != nil && !blocks(name) {
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
