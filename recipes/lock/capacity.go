package lock

import (
	"strconv"
	"strings"

	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
)

// capacity decides when a contender for a semaphore of this library has its turn: when its leases and the
// leases of all earlier contenders together are within the limit.
type capacity struct {
	leases int // the number of leases that the contender requests
	limit  int // the limit that applies if the semaphore stores no limit
}

// admit implements contender.Policy.
func (c capacity) admit(l contender.Listing) contender.Admission {
	limit, changed, stored := storedLimit(l.Names)
	if !stored {
		limit = c.limit
	}
	own, _ := contender.Sequence(l.Own)
	ahead, followed := int64(0), false
	for _, name := range l.Names {
		sequence, ok := contender.Sequence(name)
		switch {
		case !ok, name == l.Own, !l.Counts(name):
		case contender.IsBefore(sequence, own):
			ahead += int64(leasesInName(name))
		default:
			followed = true
		}
	}
	// Usually a predecessor beyond the limit waits, and writes its znode when it has its turn, so that its follower
	// is notified. mayHold reports whether the predecessor may hold leases without such a write: it may have had
	// its turn under an earlier limit, when it had no follower, or it belongs to another library.
	mayHold := func(predecessor string) bool {
		sequence, _ := contender.Sequence(predecessor)
		return stored && contender.IsBefore(sequence, changed) || !contender.IsOurs(predecessor)
	}
	switch {
	case c.leases > limit:
		return contender.Admission{Err: ErrOverLimit}
	case ahead+int64(c.leases) <= int64(limit):
		return contender.Admission{Place: contender.First, Followed: followed}
	case ahead <= int64(limit):
		return contender.Admission{Place: contender.BehindHolders}
	case mayHold(l.Predecessor):
		return contender.Admission{Place: contender.BehindAny}
	}
	return contender.Admission{Place: contender.Behind}
}

// allChildren returns the policy for leases that a client creates while it holds a mutex, as Curator and kazoo
// do: each child counts as one lease, whatever its name is.
func allChildren(limit int) func(contender.Listing) contender.Admission {
	return func(l contender.Listing) contender.Admission {
		taken := 0
		for _, name := range l.Names {
			if l.Counts(name) {
				taken++
			}
		}
		if taken <= limit {
			return contender.Admission{Place: contender.First}
		}
		return contender.Admission{Place: contender.BehindHolders}
	}
}

// leasesMark precedes the number of leases in the name of a contender that requests several leases.
const leasesMark = "-x"

// leasePrefix returns a function that returns the name of a contender for n leases, without the sequence number
// that the server appends.
func leasePrefix(n int) func(guid string) string {
	return func(guid string) string {
		prefix := contender.CuratorLease.NamePrefix(guid)
		if n == 1 {
			return prefix
		}
		base := contender.CuratorLease.Base()
		return strings.TrimSuffix(prefix, base) + leasesMark + strconv.Itoa(n) + base
	}
}

// leasesInName returns the number of leases that a contender requests: the number in its name, or 1.
func leasesInName(name string) int {
	i := strings.LastIndex(name, contender.CuratorLease.Base())
	if i < 0 {
		return 1
	}
	j := strings.LastIndex(name[:i], leasesMark)
	if j < 0 {
		return 1
	}
	if n, ok := contender.ParseCount(name[j+len(leasesMark) : i]); ok {
		return n
	}
	return 1
}

// leasesOf returns the number of leases that the contenders among names hold or request.
func leasesOf(names []string) (n int64) {
	for _, name := range names {
		if _, ok := contender.Sequence(name); ok {
			n += int64(leasesInName(name))
		}
	}
	return n
}

// limitPrefix returns the name of a child that stores a limit, without the sequence number that the server appends.
func limitPrefix(limit int) string { return contender.LimitPrefix + strconv.Itoa(limit) + "-" }

// storedLimit returns the limit that a child of the semaphore stores, and the sequence number of that child.
// If several children store a limit, the newest applies.
func storedLimit(names []string) (limit int, changed int32, stored bool) {
	for _, name := range names {
		if n, sequence, ok := contender.ParseLimit(name); ok && (!stored || contender.IsBefore(changed, sequence)) {
			limit, changed, stored = n, sequence, true
		}
	}
	return limit, changed, stored
}
