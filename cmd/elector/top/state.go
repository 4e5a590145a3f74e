// Package top is the screen of elector top: who leads each election, and who waits in the
// selected one. A State is changed by Messages alone, and a screen made of a State alone;
// the terminal is in program.go.
package top

import (
	"slices"
	"time"
)

// Candidate is one who stands in line.
type Candidate struct {
	Name, ID, Session string
	Token             int64
	Since             time.Time // when it joined; zero if that is not known
}

// Message is something that has happened: one of the types below, or a Key.
type Message any

type (
	// Heard is the line of an election, the leader first.
	Heard struct {
		At         time.Time
		Election   string
		Candidates []Candidate
	}
	// Failed says that nothing can be learned of an election at present.
	Failed struct {
		At       time.Time
		Election string
		Err      error
		Gone     bool // because it does not exist
	}
	// Found adds elections to those that are shown.
	Found struct {
		Elections []string
		Note      string // what is not right about that, if anything
	}
	// Tick says what time it is.
	Tick struct{ At time.Time }
	// Size is that of the screen.
	Size struct{ Width, Height int }
)

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
	KeyHelp
	KeyQuit
)

// State is all that the screen shows.
type State struct {
	about         string // where the elections are
	began, now    time.Time
	width, height int
	elections     []election
	note          string
	selected      int  // election
	inLine        bool // keys move in the line of the selected election
	cursor        int  // in that line
	help, quit    bool
}

// election is what is known of one.
type election struct {
	name  string
	line  []Candidate
	gone  bool      // it does not exist
	heard time.Time // when this was learned; zero before
	err   error     // why nothing was learned since then
	// leads is since when the leader is seen to lead; earlier says that it has before.
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
		return s.change(m.Election, m.At, func(e election) election { return e.hears(m) })
	case Failed:
		return s.change(m.Election, m.At, func(e election) election {
			if m.Gone {
				return election{name: e.name, gone: true, heard: m.At}
			}
			e.err = m.Err
			return e
		})
	case Key:
		return s.press(m)
	}
	return s
}

// add keeps the elections in the order in which they were named.
func (s State) add(names []string) State {
	s.elections = slices.Clone(s.elections)
	for _, name := range names {
		if !slices.ContainsFunc(s.elections, func(e election) bool { return e.name == name }) {
			s.elections = append(s.elections, election{name: name})
		}
	}
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
		}
	}
	return s.clamp()
}

// hears takes in a line.
func (e election) hears(m Heard) election {
	first := e.heard.IsZero()
	before, now := e.leader(), Candidate{}
	if len(m.Candidates) > 0 {
		now = m.Candidates[0]
	}
	if first || before.ID != now.ID {
		// The first that is heard of has become what it is at some time before.
		e.leads, e.earlier = m.At, first
	}
	e.line, e.heard, e.err, e.gone = m.Candidates, m.At, nil, false
	return e
}

// leader is the first in line; the zero Candidate if there is nobody.
func (e election) leader() Candidate {
	if len(e.line) == 0 {
		return Candidate{}
	}
	return e.line[0]
}

func (s State) press(k Key) State {
	if s.help {
		s.help = false
		s.quit = k == KeyQuit
		return s
	}
	at, last := &s.selected, len(s.elections)-1
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
		s.inLine = false
	case KeyHelp:
		s.help = true
	case KeyQuit:
		s.quit = true
	}
	return s.clamp()
}

// clamp keeps what is selected among what there is.
func (s State) clamp() State {
	s.selected = max(0, min(s.selected, len(s.elections)-1))
	s.cursor = max(0, min(s.cursor, len(s.line())-1))
	return s
}

// line is that of the selected election.
func (s State) line() []Candidate {
	if len(s.elections) == 0 {
		return nil
	}
	return s.elections[s.selected].line
}
