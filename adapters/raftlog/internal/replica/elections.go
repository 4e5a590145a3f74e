package replica

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
)

// Candidate stands in an election's line.
type Candidate struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	Peer uint64 `json:"peer"`
	// Joined is the index of the entry by which it stands there.
	Joined uint64 `json:"joined"`
	// Token is the index of the entry by which it has become the first; 0 before. It is its
	// fencing token: whoever becomes first later does so by a later entry.
	Token uint64 `json:"token,omitempty"`
}

// Line is an election: its candidates in order of arrival, of whom the first is the one that
// may lead, as far as its peer has a lease. A Line that was handed out does not change.
type Line struct {
	Ended      bool
	EndedAt    uint64    // the index of the entry by which it was ended
	BegunAt    uint64    // that by which it was begun anew after an end; 0 if it never was
	Date       time.Time // the log's time at EndedAt or BegunAt
	Candidates []Candidate
}

// Lines are the elections: their lines by name, and which peers have candidates in them. What it
// costs to find those does not depend on how many elections there are besides.
type Lines struct {
	byName map[string]Line
	peers  map[uint64]*presence // of peers that have candidates
	// past are the entries that ended or restarted elections, in ascending order. If an election
	// was ended or restarted again after an entry, that entry has no effect.
	past      []past
	forgotten uint64 // Through of the newest Forget
}

type past struct {
	index    uint64
	date     time.Time
	election string
}

// presence is where a peer has candidates.
type presence struct {
	candidates map[string]int // how many, by election
	first      int            // in how many elections one of them is the first
}

func newLines() Lines { return Lines{byName: map[string]Line{}, peers: map[uint64]*presence{}} }

// Line returns the election with that name. An election that does not exist is the zero Line.
func (ls *Lines) Line(name string) Line { return ls.byName[name] }

// Names returns the names of all elections in ascending order.
func (ls *Lines) Names() []string { return slices.Sorted(maps.Keys(ls.byName)) }

// Peers returns the peers that have candidates, in ascending order.
func (ls *Lines) Peers() []uint64 { return slices.Sorted(maps.Keys(ls.peers)) }

// Of returns the elections in which a peer has candidates, in ascending order.
func (ls *Lines) Of(peer uint64) []string {
	if p := ls.peers[peer]; p != nil {
		return slices.Sorted(maps.Keys(p.candidates))
	}
	return nil
}

// Leads tells whether the first candidate of some election is of that peer.
func (ls *Lines) Leads(peer uint64) bool {
	p := ls.peers[peer]
	return p != nil && p.first > 0
}

// First returns the candidate that may lead.
func (l Line) First() (Candidate, bool) {
	if len(l.Candidates) == 0 {
		return Candidate{}, false
	}
	return l.Candidates[0], true
}

// Place is where the candidate stands, 0 for the first; -1 if it does not.
func (l Line) Place(id string) int {
	return slices.IndexFunc(l.Candidates, func(c Candidate) bool { return c.ID == id })
}

// apply carries out an op at the log's time; an error says why it changes nothing.
func (ls *Lines) apply(op entry.Op, index uint64, clock time.Time) error {
	l := ls.Line(op.Election)
	switch op.Do {
	case entry.Join:
		switch {
		case l.Ended:
			return errEnded
		case l.Place(op.Candidate) >= 0:
			return nil
		}
		c := Candidate{ID: op.Candidate, Name: op.Name, Peer: op.Peer, Joined: index}
		ls.set(op.Election, Line{BegunAt: l.BegunAt, Date: l.Date, Candidates: append(slices.Clip(l.Candidates), c)}, index)
	case entry.Leave:
		place := l.Place(op.Candidate)
		if place < 0 {
			return nil
		}
		ls.set(op.Election, l.without(func(c Candidate) bool { return c.ID == op.Candidate }), index)
	case entry.End:
		switch late := op.Through < l.BegunAt; {
		case op.Through < ls.forgotten:
			return errOld
		case !l.Ended && !late:
			ls.past = append(ls.past, past{index, clock, op.Election})
			ls.set(op.Election, Line{Ended: true, EndedAt: index, Date: clock}, index)
		}
	case entry.Restart:
		if l.Ended && op.Through >= l.EndedAt {
			ls.past = append(ls.past, past{index, clock, op.Election})
			ls.set(op.Election, Line{BegunAt: index, Date: clock}, index)
		}
	default:
		return fmt.Errorf("%w: control entry with the unknown operation %q", api.ErrInvalid, op.Do)
	}
	return nil
}

var (
	errEnded = fmt.Errorf("%w: the election was ended", api.ErrInvalid)
	errOld   = fmt.Errorf("%w: later ends of elections are no longer stored", api.ErrStale)
)

const (
	// maxPast is the number of ended and restarted elections that are kept at most.
	maxPast = 1 << 17
	// maxForget is the number of elections that one Forget removes at most, which takes little time.
	maxForget = 1000
)

// Forgettable returns the Through of the next Forget, or 0 if there is nothing to forget. It
// includes entries before the given time of the log and the oldest entries beyond maxPast, up to
// the first ended election that over reports false for: a candidate may still have its lease.
func (ls *Lines) Forgettable(before time.Time, over func(election string) bool) (through uint64) {
	for i, p := range ls.past[:min(len(ls.past), maxForget)] {
		if !p.date.Before(before) && len(ls.past)-i <= maxPast || ls.byName[p.election].EndedAt == p.index && !over(p.election) {
			break
		}
		through = p.index
	}
	return through
}

// Oldest returns the log's time at the oldest entry that a Forget would include, and whether
// there are more than maxPast entries.
func (ls *Lines) Oldest() (date time.Time, found, tooMany bool) {
	if len(ls.past) == 0 {
		return time.Time{}, false, false
	}
	return ls.past[0].date, true, len(ls.past) > maxPast
}

// forget applies a Forget and returns the ended elections that it removes.
func (ls *Lines) forget(op entry.Op, index uint64) (removed []string, err error) {
	if op.Through >= index {
		return nil, fmt.Errorf("%w: entry %d cannot forget elections through %d", api.ErrInvalid, index, op.Through)
	}
	ls.forgotten = max(ls.forgotten, op.Through)
	for len(ls.past) > 0 && ls.past[0].index <= op.Through {
		p := ls.past[0]
		ls.past = ls.past[1:]
		switch l, found := ls.byName[p.election]; {
		case l.EndedAt == p.index:
			delete(ls.byName, p.election)
			removed = append(removed, p.election)
		case found && !l.Ended && len(l.Candidates) == 0 && l.BegunAt == p.index:
			delete(ls.byName, p.election)
		}
	}
	return removed, nil
}

// expire returns the elections that have changed.
func (ls *Lines) expire(op entry.Op, index uint64) []string {
	var changed []string
	for _, name := range ls.Of(op.Peer) {
		l := ls.Line(name)
		left := l.without(func(c Candidate) bool { return c.Peer == op.Peer && c.Joined <= op.Through })
		if len(left.Candidates) < len(l.Candidates) {
			ls.set(name, left, index)
			changed = append(changed, name)
		}
	}
	return changed
}

func (l Line) without(gone func(Candidate) bool) Line {
	return Line{Ended: l.Ended, EndedAt: l.EndedAt, BegunAt: l.BegunAt, Date: l.Date, Candidates: slices.DeleteFunc(slices.Clone(l.Candidates), gone)}
}

// set gives the first candidate its token, and removes a line without candidates, unless the
// election was ended once and that is not forgotten.
func (ls *Lines) set(name string, l Line, index uint64) {
	if len(l.Candidates) > 0 && l.Candidates[0].Token == 0 {
		l.Candidates = slices.Clone(l.Candidates)
		l.Candidates[0].Token = index
	}
	ls.count(name, ls.byName[name], -1)
	ls.count(name, l, 1)
	if len(l.Candidates) == 0 && !l.Ended && l.BegunAt <= ls.forgotten {
		delete(ls.byName, name)
		return
	}
	ls.byName[name] = l
}

// count adds n to the counts of the line's candidates, which is 1 or -1.
func (ls *Lines) count(name string, l Line, n int) {
	for i, c := range l.Candidates {
		p := ls.peers[c.Peer]
		if p == nil {
			p = &presence{candidates: map[string]int{}}
			ls.peers[c.Peer] = p
		}
		if i == 0 {
			p.first += n
		}
		if p.candidates[name] += n; p.candidates[name] == 0 {
			delete(p.candidates, name)
		}
		if len(p.candidates) == 0 {
			delete(ls.peers, c.Peer)
		}
	}
}

// savedLine is a Line in a snapshot.
type savedLine struct {
	Name       string      `json:"name"`
	Ended      bool        `json:"ended,omitempty"`
	EndedAt    uint64      `json:"endedAt,omitempty"`
	BegunAt    uint64      `json:"begunAt,omitempty"`
	Date       int64       `json:"date,omitempty"`
	Candidates []Candidate `json:"candidates,omitempty"`
}

func save(byName map[string]Line) []savedLine {
	var all []savedLine
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		l := byName[name]
		all = append(all, savedLine{name, l.Ended, l.EndedAt, l.BegunAt, nanoseconds(l.Date), l.Candidates})
	}
	return all
}

// load returns the lines of a snapshot of that index and time of the log.
func load(all []savedLine, forgotten, index uint64, clock time.Time) (Lines, error) {
	ls := newLines()
	ls.forgotten = forgotten
	for _, s := range all {
		l := Line{s.Ended, s.EndedAt, s.BegunAt, fromNanoseconds(s.Date), s.Candidates}
		at := max(l.EndedAt, l.BegunAt)
		if at > index || l.EndedAt != 0 && l.BegunAt != 0 || l.Ended != (l.EndedAt != 0) || l.Ended && len(l.Candidates) > 0 {
			return ls, fmt.Errorf("%w: election %q", entry.ErrMalformed, s.Name)
		}
		if at != 0 {
			if l.Date.IsZero() { // written before dates were kept
				l.Date = clock
			}
			ls.past = append(ls.past, past{at, l.Date, s.Name})
		}
		ls.byName[s.Name] = l
		ls.count(s.Name, l, 1)
	}
	slices.SortFunc(ls.past, func(a, b past) int { return cmp.Compare(a.index, b.index) })
	if forgotten > index {
		return ls, fmt.Errorf("%w: elections are forgotten through %d", entry.ErrMalformed, forgotten)
	}
	return ls, nil
}
