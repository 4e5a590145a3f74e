package line

import (
	"strconv"
	"strings"
)

// MaxWeight bounds weights and limits: nine digits.
const MaxWeight = 999_999_999

const (
	limitPrefix = "limit-"
	weightMark  = "-x"
)

// LimitPrefix is the name of a child that stores n as the limit of a line's node,
// up to its sequence number.
func LimitPrefix(n int) string { return limitPrefix + strconv.Itoa(n) + "-" }

// IsLimit reports whether a child stores a limit.
func IsLimit(name string) bool {
	_, _, ok := limitOf(name)
	return ok
}

// StoredLimit is the limit that a listing shows, and the number of its change among
// those of the contenders. If there are several the newest counts.
func StoredLimit(children []string) (n int, changed int32, stored bool) {
	for _, name := range children {
		if limit, sequence, ok := limitOf(name); ok && (!stored || before(changed, sequence)) {
			n, changed, stored = limit, sequence, true
		}
	}
	return n, changed, stored
}

func limitOf(name string) (n int, sequence int32, ok bool) {
	rest, ok := strings.CutPrefix(name, limitPrefix)
	if !ok {
		return 0, 0, false
	}
	digits, number, ok := strings.Cut(rest, "-")
	if !ok {
		return 0, 0, false
	}
	n, ok = count(digits)
	const width = 10 // a negative number may be longer by its sign
	if !ok || len(number) != width && (len(number) != width+1 || number[0] != '-') {
		return 0, 0, false
	}
	s, err := strconv.ParseInt(number, 10, 32)
	return n, int32(s), err == nil
}

// weightOf is how much a contender takes: what its name says, 1 where that says
// nothing.
func weightOf(name string) int {
	i := strings.LastIndex(name, bases[CuratorLease])
	if i < 0 {
		return 1
	}
	j := strings.LastIndex(name[:i], weightMark)
	if j < 0 {
		return 1
	}
	if n, ok := count(name[j+len(weightMark) : i]); ok {
		return n
	}
	return 1
}

// count reads a number from 1 to MaxWeight, in the one way to write it.
func count(digits string) (n int, ok bool) {
	n, err := strconv.Atoi(digits)
	return n, err == nil && n >= 1 && n <= MaxWeight && strconv.Itoa(n) == digits
}

// prefix is the name of a new znode of this contender up to its sequence number.
func (p *place) prefix() string {
	prefix := p.Naming.prefix(newGUID())
	if p.Room != nil && p.Room.Weight > 1 {
		base := bases[CuratorLease]
		prefix = strings.TrimSuffix(prefix, base) + weightMark + strconv.Itoa(p.Room.Weight) + base
	}
	return prefix
}
