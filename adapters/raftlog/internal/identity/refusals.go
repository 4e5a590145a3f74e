package identity

import (
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
)

const (
	// refusalTime is the time for which a refusal counts. A peer that refuses another peer repeats the refusal
	// whenever one of the two connects, which is about once a second.
	refusalTime = 10 * time.Second
	// A refusal with ReasonRunning counts if it was repeated for copyTime and at least copyCount
	// times. Peers close the connection of a crashed process after three seconds without data, so a
	// restarted process is not refused for that long.
	copyTime  = 10 * time.Second
	copyCount = 4
)

// Refusals contains the refusals of this process by other peers, and decides whether the process must
// stop. One other peer can be wrong: its files can be damaged or belong to another time. So it cannot
// stop a voter that has entries of the log, which may be the only copy. The zero value is valid. It
// is not safe for concurrent use.
type Refusals struct{ by map[string]*refusal }

// refusal describes consecutive refusals by one peer.
type refusal struct {
	first, last time.Duration
	count       int
	counts      bool
}

// Add records that a peer has refused this process, and reports whether the process must stop.
//
// A process is established if it has entries of the log and is a voter according to them. Any other
// process has nothing to lose: it has no entries, or a copy of those of the voters, and stops if one
// peer refuses its identity. An established process stops if a majority of the voters has refused it
// within ten seconds; voters are the IDs in its log. A refusal because of another founding never
// stops it: two clusters have the same name, and both continue.
func (r *Refusals) Add(by string, reason link.Reason, now time.Duration, established bool, voters []string) (mustStop bool) {
	switch reason {
	case link.ReasonInstance, link.ReasonEarlier, link.ReasonRecovered, link.ReasonRunning:
	case link.ReasonFounding:
		return !established
	default:
		return false
	}
	if r.by == nil {
		r.by = map[string]*refusal{}
	}
	s := r.by[by]
	if s == nil || now-s.last > refusalTime {
		s = &refusal{first: now}
		r.by[by] = s
	}
	s.last = now
	s.count++
	s.counts = reason != link.ReasonRunning || now-s.first >= copyTime && s.count >= copyCount
	if !established {
		return s.counts
	}
	n := 0
	for id, s := range r.by {
		if s.counts && now-s.last <= refusalTime && slices.Contains(voters, id) {
			n++
		}
	}
	return n > len(voters)/2
}
