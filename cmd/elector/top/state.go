// Package top is the screen of elector top: the leader of each election, the candidates of the
// selected one, and recent changes. Only Messages change a State, and the screen depends only on
// the State. The terminal is in program.go.
package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Candidate is a candidate of an election.
type Candidate struct {
	Name, ID, Session string
	Token             int64
	Since             time.Time // when it joined; zero if that is not known
}

// Message is an event: one of the types below, or a Key.
type Message any

type (
	// Heard contains the candidates of an election in order, the leader first.
	Heard struct {
		At         time.Time
		Election   string
		Candidates []Candidate
	}
	// Failed is the error of a request for the candidates of an election.
	Failed struct {
		At       time.Time
		Election string
		Err      error
		Gone     bool // the election does not exist
	}
	// Found adds elections to those that are shown.
	Found struct {
		Elections []string
		Note      string // a problem of the search, if there is one
	}
	// Resigned is the result of a Request.
	Resigned struct {
		At      time.Time
		Request Request
		Err     error // nil if the candidate has left its position
	}
	// Tick is the current time.
	Tick struct{ At time.Time }
	// Size is that of the screen.
	Size struct{ Width, Height int }
	// Typed is a key with a character.
	Typed struct{ Text string }
)

// Request asks a candidate to hand over.
type Request struct {
	Election  string
	Candidate Candidate
}

// Key is a key that was pressed.
type Key int

// The keys that have a meaning.
const (
	KeyNone Key = iota
	KeyUp
	KeyDown
	KeyHome
	KeyEnd
	KeySwitch // between elections and candidates
	KeyBack
	KeyErase
	KeyFilter
	KeySort
	KeyResign
	KeyHelp
	KeyQuit
)

var runes = map[string]Key{
	"k": KeyUp, "j": KeyDown, "/": KeyFilter, "s": KeySort, "r": KeyResign, "?": KeyHelp, "h": KeyHelp, "q": KeyQuit,
}

// order is an order of the elections.
type order int

const (
	asGiven order = iota
	byName
	byState   // those without a leader or an answer first
	byChange  // the newest leader first
	byWaiting // the most candidates first
	orders
)

func (o order) String() string {
	return [...]string{"as given", "by name", "by state", "by last change", "by candidates"}[o]
}

// State is everything that the screen shows.
type State struct {
	about         string // where the elections are
	began, now    time.Time
	width, height int
	elections     []election
	note          string
	changes       []change // the newest first
	selected      string   // an election
	row           int      // of that election
	order         order
	filter        string
	filtering     bool     // keys change the filter
	inLine        bool     // keys move in the queue of the selected election
	cursor        int      // in that queue
	asking        *Request // the user must confirm it
	confirmed     *Request // the user has confirmed it
	help, quit    bool
}

// change is an element of the recent changes.
type change struct {
	at       time.Time
	election string
	text     string
	look     Look
}

// maxChanges is the number of recent changes that are kept.
const maxChanges = 200

// election is the last known state of an election.
type election struct {
	name  string
	line  []Candidate
	gone  bool      // it does not exist
	heard time.Time // the time of this state; zero before the first answer
	err   error     // the error of requests since then
	// leads is when the leader was first seen to lead. earlier reports that it may have led before.
	leads   time.Time
	earlier bool
}

// New returns the State before anything has happened. about says where the elections are.
func New(about string, now time.Time, elections ...string) State {
	s := State{about: about, began: now, now: now, width: 80, height: 24}
	return s.add(elections)
}

// Quit reports whether the user wants to leave.
func (s State) Quit() bool { return s.quit }

// TakeRequest returns the request that the user has confirmed, or nil, and the State without it.
func (s State) TakeRequest() (State, *Request) {
	r := s.confirmed
	s.confirmed = nil
	return s, r
}

// Update returns the State after m.
func (s State) Update(m Message) State {
	switch m := m.(type) {
	case Tick:
		s.now = m.At
	case Size:
		s.width, s.height = m.Width, m.Height
	case Found:
		s = s.add(m.Elections)
		s.note = m.Note
	case Heard:
		s = s.change(m.Election, m.At, func(e election) election { return e.hears(m) })
	case Failed:
		s = s.change(m.Election, m.At, func(e election) election {
			if m.Gone {
				return election{name: e.name, gone: true, heard: m.At}
			}
			e.err = m.Err
			return e
		})
	case Resigned:
		text, look := m.Request.Candidate.Name+" has handed over", Plain
		if m.Err != nil {
			text, look = m.Request.Candidate.Name+" has not handed over: "+m.Err.Error(), Alarm
		}
		s = s.record(change{m.At, m.Request.Election, text, look})
	case Typed:
		s = s.typed(m.Text)
	case Key:
		s = s.press(m)
	}
	return s.clamp()
}

// add appends elections that are not shown yet.
func (s State) add(names []string) State {
	s.elections = slices.Clone(s.elections)
	for _, name := range names {
		if !slices.ContainsFunc(s.elections, func(e election) bool { return e.name == name }) {
			s.elections = append(s.elections, election{name: name})
		}
	}
	return s.clamp()
}

func (s State) record(c ...change) State {
	s.changes = append(slices.Clone(c), s.changes...)
	s.changes = s.changes[:min(len(s.changes), maxChanges)]
	return s
}

func (s State) change(name string, at time.Time, f func(election) election) State {
	if at.After(s.now) {
		s.now = at
	}
	s.elections = slices.Clone(s.elections)
	for i, e := range s.elections {
		if e.name == name {
			s.elections[i] = f(e)
			for _, c := range differences(e, s.elections[i]) {
				s = s.record(change{at, name, c.text, c.look})
			}
		}
	}
	return s
}

// differences returns the changes of an election since it was first seen, the oldest first.
func differences(before, after election) (all []change) {
	add := func(look Look, format string, args ...any) {
		all = append(all, change{text: fmt.Sprintf(format, args...), look: look})
	}
	switch {
	case before.err == nil && after.err != nil:
		add(Warning, "no answer: %v", after.err)
		return all
	case before.heard.IsZero() || after.err != nil:
		return nil
	case before.err != nil:
		add(Plain, "answers again")
	}
	switch {
	case !before.gone && after.gone:
		add(Alarm, "the election was deleted")
		return all
	case before.gone && !after.gone:
		add(Plain, "the election was created")
	}
	has := func(line []Candidate, id string) bool {
		return slices.ContainsFunc(line, func(c Candidate) bool { return c.ID == id })
	}
	for _, c := range before.line {
		if !has(after.line, c.ID) {
			add(Plain, "%s left", c.Name)
		}
	}
	for _, c := range after.line {
		if !has(before.line, c.ID) {
			add(Plain, "%s joined", c.Name)
		}
	}
	switch was, is := before.leader(), after.leader(); {
	case was.ID == is.ID:
	case is.ID == "":
		add(Alarm, "no leader")
	default:
		add(Leading, "%s leads, token %d", is.Name, is.Token)
	}
	return all
}

// hears returns the election with new candidates.
func (e election) hears(m Heard) election {
	first := e.heard.IsZero()
	before, now := e.leader(), Candidate{}
	if len(m.Candidates) > 0 {
		now = m.Candidates[0]
	}
	if first || before.ID != now.ID {
		// The leader in the first answer was elected at some time before.
		e.leads, e.earlier = m.At, first
	}
	e.line, e.heard, e.err, e.gone = m.Candidates, m.At, nil, false
	return e
}

// leader returns the first candidate, or the zero Candidate if there is none.
func (e election) leader() Candidate {
	if len(e.line) == 0 {
		return Candidate{}
	}
	return e.line[0]
}

// leaderless reports whether it is known that the election exists and has no leader.
func (e election) leaderless() bool { return !e.heard.IsZero() && !e.gone && len(e.line) == 0 }

// typed handles a character: a part of the filter, an answer, or a key.
func (s State) typed(text string) State {
	switch {
	case s.filtering:
		s.filter += text
		return s
	case s.asking != nil:
		if text == "y" || text == "Y" {
			s.confirmed = s.asking
			s = s.record(change{s.now, s.asking.Election, s.asking.Candidate.Name + " was requested to hand over", Plain})
		}
		s.asking = nil
		return s
	}
	return s.press(runes[text])
}

func (s State) press(k Key) State {
	switch {
	case s.help:
		s.help = false
		s.quit = k == KeyQuit
		return s
	case s.filtering:
		switch k {
		case KeySwitch:
			s.filtering = false
		case KeyBack:
			s.filtering, s.filter = false, ""
		case KeyErase:
			runes := []rune(s.filter)
			s.filter = string(runes[:max(0, len(runes)-1)])
		case KeyQuit: // Ctrl-C
			s.quit = true
		}
		return s
	case s.asking != nil:
		s.asking = nil
		s.quit = k == KeyQuit
		return s
	}
	at, last := &s.row, len(s.visible())-1
	if s.inLine {
		at, last = &s.cursor, len(s.line())-1
	}
	switch k {
	case KeyUp:
		*at--
	case KeyDown:
		*at++
	case KeyHome:
		*at = 0
	case KeyEnd:
		*at = last
	case KeySwitch:
		s.inLine = !s.inLine
		if s.inLine {
			s.cursor = 0
		}
	case KeyBack:
		if !s.inLine {
			s.filter = ""
		}
		s.inLine = false
	case KeyFilter:
		s.filtering, s.inLine = true, false
	case KeySort:
		s.order = (s.order + 1) % orders
	case KeyResign:
		if line := s.line(); len(line) > 0 {
			s.asking = &Request{s.selected, line[0]}
			if s.inLine {
				s.asking.Candidate = line[s.cursor]
			}
		}
	case KeyHelp:
		s.help = true
	case KeyQuit:
		s.quit = true
	}
	if !s.inLine && (k == KeyUp || k == KeyDown || k == KeyHome || k == KeyEnd) {
		s.selected = "" // the one in the row
	}
	return s
}

// visible returns the elections that match the filter, in order.
func (s State) visible() []election {
	shown := slices.Clone(s.elections)
	if s.filter != "" {
		shown = slices.DeleteFunc(shown, func(e election) bool {
			return !strings.Contains(strings.ToLower(e.name+"\n"+e.leader().Name), strings.ToLower(s.filter))
		})
	}
	rank := func(e election) int { // of problems
		switch {
		case e.leaderless():
			return 0
		case e.err != nil:
			return 1
		case e.gone || e.heard.IsZero():
			return 2
		}
		return 3
	}
	slices.SortStableFunc(shown, func(a, b election) int {
		switch s.order {
		case byName:
			return strings.Compare(a.name, b.name)
		case byState:
			return cmp.Compare(rank(a), rank(b))
		case byChange:
			return b.leads.Compare(a.leads)
		case byWaiting:
			return cmp.Compare(len(b.line), len(a.line))
		}
		return 0
	})
	return shown
}

// clamp makes the selection refer to what is shown. An election remains selected if its row
// changes.
func (s State) clamp() State {
	shown := s.visible()
	if i := slices.IndexFunc(shown, func(e election) bool { return e.name == s.selected }); i >= 0 {
		s.row = i
	}
	s.row = max(0, min(s.row, len(shown)-1))
	s.selected = ""
	if len(shown) > 0 {
		s.selected = shown[s.row].name
	}
	s.cursor = max(0, min(s.cursor, len(s.line())-1))
	return s
}

// line returns the queue of the selected election.
func (s State) line() []Candidate {
	for _, e := range s.elections {
		if e.name == s.selected {
			return e.line
		}
	}
	return nil
}
