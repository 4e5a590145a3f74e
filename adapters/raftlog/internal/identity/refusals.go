package identity

import (
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
)

const (
	// refusalTime is the time for which Refusals takes a refusal into account. A peer that refuses another
	// peer repeats the refusal whenever one of the two connects, which is about once a second.
	refusalTime = 10 * time.Second
	// Refusals takes a refusal with ReasonRunning into account if it was repeated for copyTime and at
	// least copyCount times. Peers close the connection of a crashed process after three seconds
	// without data, so they do not refuse a restarted process for that long.
	copyTime  = 10 * time.Second
	copyCount = 4
)

// Refusals contains the refusals of this process by other peers, and decides whether the process must
// stop. A single other peer can be wrong: its files can be damaged, or old copies. So a single peer
// cannot stop a voter that has entries of the log, which may be the only copy. The zero value is ready
// to use. Refusals is not safe for concurrent use.
type Refusals struct{ by map[string]*refusal }

// refusal describes the consecutive refusals of this process by one peer.
type refusal struct {
	first, last time.Duration
	count       int
	counts      bool
}

// Add records that a peer has refused this process, and reports whether the process must stop.
//
// A process is established if its log has entries, and it is a voter according to them. Any other
// process has nothing to lose: it has no entries, or a copy of entries of the voters. It stops if one
// peer refuses its identity. An established process stops if a majority of the voters has refused it
// within ten seconds; voters are the IDs in its log. An established process never stops because of a
// refusal with another founding: two clusters have the same name, and both continue.
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
