// Package top implements the screen of elector top: the leader of each election, the candidates of
// the selected election, and recent changes. Only Messages change a State, and the rows of the screen
// depend only on the State. [Run] connects a State with a terminal.
//
// It uses tcell, which works on cells, so a row is never wider than the screen, and which has an emulated terminal for
// tests. bubbletea links half as much code again, for a model with an update and a view, which takes two functions here.
package top

import (
	"slices"
	"time"
)

// State is the state of the screen.
type State struct {
	title         string
	started, now  time.Time
	width, height int
	elections     []election
	note          string   // the problem of the last search for elections, or empty
	changes       []change // the changes to show, the newest first
	selected      string   // the name of the selected election
	selectedRow   int      // the row of the selected election
	order         order
	filter        string
	filtering     bool     // whether typed keys change the filter
	inQueue       bool     // whether keys move the cursor in the queue of the selected election
	cursor        int      // the position of the cursor in the queue
	unconfirmed   *Request // the request that the user is asked to confirm, or nil
	confirmed     *Request // the request that the user has confirmed, or nil
	help, quit    bool
}

// New returns the State of a screen whose elections have not been listed yet.
func New(title string, now time.Time, elections ...string) State {
	s := State{title: title, started: now, now: now, width: 80, height: 24}
	return s.addElections(elections)
}

// Quit reports whether the user wants to quit.
func (s State) Quit() bool { return s.quit }

// TakeRequest returns the request that the user has confirmed, or nil, and the State without that request.
func (s State) TakeRequest() (State, *Request) {
	r := s.confirmed
	s.confirmed = nil
	return s, r
}

// Update returns the State after the message m, without changing s.
func (s State) Update(m Message) State {
	switch m := m.(type) {
	case Tick:
		s.now = m.At
	case Size:
		s.width, s.height = m.Width, m.Height
	case Found:
		s = s.addElections(m.Elections)
		s.note = m.Note
	case Listed:
		s = s.updateElection(m.Election, m.At, func(e election) election { return e.withCandidates(m) })
	case Missing:
		s = s.updateElection(m.Election, m.At, func(e election) election {
			return election{name: e.name, missing: true, updated: m.At}
		})
	case Failed:
		s = s.updateElection(m.Election, m.At, func(e election) election {
			e.err = m.Err
			return e
		})
	case Resigned:
		text, style := m.Request.Candidate.Name+" has handed over", Plain
		if m.Err != nil {
			text, style = m.Request.Candidate.Name+" has not handed over: "+m.Err.Error(), Alarm
		}
		s = s.recordChange(change{m.At, m.Request.Election, text, style})
	case Typed:
		s = s.handleText(m.Text)
	case Key:
		s = s.handleKey(m)
	}
	return s.clampSelection()
}

// addElections adds those of the elections to the screen that it does not show yet.
func (s State) addElections(names []string) State {
	s.elections = slices.Clone(s.elections)
	for _, name := range names {
		if !slices.ContainsFunc(s.elections, func(e election) bool { return e.name == name }) {
			s.elections = append(s.elections, election{name: name})
		}
	}
	return s.clampSelection()
}

func (s State) recordChange(c change) State {
	s.changes = append([]change{c}, s.changes...)
	s.changes = s.changes[:min(len(s.changes), maxChanges)]
	return s
}

// updateElection applies f to an election, and adds the differences to the recent changes.
func (s State) updateElection(name string, at time.Time, f func(election) election) State {
	if at.After(s.now) {
		s.now = at
	}
	s.elections = slices.Clone(s.elections)
	for i, e := range s.elections {
		if e.name == name {
			s.elections[i] = f(e)
			for _, c := range changesBetween(e, s.elections[i]) {
				s = s.recordChange(change{at, name, c.text, c.style})
			}
		}
	}
	return s
}
