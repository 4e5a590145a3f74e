package replica

import (
	"fmt"
	"maps"
	"slices"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/api"
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
	EndedAt    uint64 // the index of the entry by which it was ended
	BegunAt    uint64 // that by which it was begun anew after an end; 0 if it never was
	Candidates []Candidate
}

// Lines are the elections: their lines by name, and which peers have candidates in them. What it
// costs to find those does not depend on how many elections there are besides.
type Lines struct {
	byName map[string]Line
	peers  map[uint64]*presence // of peers that have candidates
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

// apply carries out an op; an error says why it changes nothing.
func (ls *Lines) apply(op entry.Op, index uint64) error {
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
		ls.set(op.Election, Line{BegunAt: l.BegunAt, Candidates: append(slices.Clip(l.Candidates), c)}, index)
	case entry.Leave:
		place := l.Place(op.Candidate)
		if place < 0 {
			return nil
		}
		ls.set(op.Election, l.without(func(c Candidate) bool { return c.ID == op.Candidate }), index)
	case entry.End:
		if late := op.Through != 0 && op.Through < l.BegunAt; !l.Ended && !late {
			ls.set(op.Election, Line{Ended: true, EndedAt: index}, index)
		}
	case entry.Restart:
		if l.Ended && op.Through >= l.EndedAt {
			ls.set(op.Election, Line{BegunAt: index}, index)
		}
	default:
		return fmt.Errorf("%w: control entry asks for %q", api.ErrInvalid, op.Do)
	}
	return nil
}

var errEnded = fmt.Errorf("%w: the election was ended", api.ErrInvalid)

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
	return Line{Ended: l.Ended, EndedAt: l.EndedAt, BegunAt: l.BegunAt, Candidates: slices.DeleteFunc(slices.Clone(l.Candidates), gone)}
}

// set gives the first candidate its token, and removes a line without candidates, unless the
// election was ended once.
func (ls *Lines) set(name string, l Line, index uint64) {
	if len(l.Candidates) > 0 && l.Candidates[0].Token == 0 {
		l.Candidates = slices.Clone(l.Candidates)
		l.Candidates[0].Token = index
	}
	ls.count(name, ls.byName[name], -1)
	ls.count(name, l, 1)
	if len(l.Candidates) == 0 && !l.Ended && l.BegunAt == 0 {
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
	Candidates []Candidate `json:"candidates,omitempty"`
}

func save(byName map[string]Line) []savedLine {
	var all []savedLine
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		l := byName[name]
		all = append(all, savedLine{name, l.Ended, l.EndedAt, l.BegunAt, l.Candidates})
	}
	return all
}

func load(all []savedLine) Lines {
	ls := newLines()
	for _, s := range all {
		l := Line{s.Ended, s.EndedAt, s.BegunAt, s.Candidates}
		ls.byName[s.Name] = l
		ls.count(s.Name, l, 1)
	}
	return ls
}
