// Package top implements the screen of elector top: the leader of each election, the candidates of
// the selected election, and recent changes. Only Messages change a State, and the rows of the screen
// depend only on the State. [Run] connects a State with a terminal.
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
	Joined            time.Time // zero if the time is unknown
}

// Message is an event: one of the types below, or a Key.
type Message any

type (
	// Listed contains the candidates of an election in order, the leader first.
	Listed struct {
		At         time.Time
		Election   string
		Candidates []Candidate
	}
	// Missing reports that an election does not exist.
	Missing struct {
		At       time.Time
		Election string
	}
	// Failed contains the error of a request for the candidates of an election.
	Failed struct {
		At       time.Time
		Election string
		Err      error
	}
	// Found adds elections to those that are shown.
	Found struct {
		Elections []string
		Note      string // a problem of the search, or ""
	}
	// Resigned is the result of a Request.
	Resigned struct {
		At      time.Time
		Request Request
		Err     error // nil if the candidate has left its position
	}
	// Tick contains the current time.
	Tick struct{ At time.Time }
	// Size is the size of the screen.
	Size struct{ Width, Height int }
	// Typed is a key with a character.
	Typed struct{ Text string }
)

// Request requests a candidate to hand over.
type Request struct {
	Election  string
	Candidate Candidate
}

// Key is a key that was pressed.
type Key int

// The keys with a function.
const (
	KeyNone Key = iota
	KeyUp
	KeyDown
	KeyHome
	KeyEnd
	KeySwitch // switches between elections and candidates
	KeyBack
	KeyErase
	KeyFilter
	KeySort
	KeyResign
	KeyHelp
	KeyQuit
)

// characterKeys maps characters to keys.
var characterKeys = map[string]Key{
	"k": KeyUp, "j": KeyDown, "/": KeyFilter, "s": KeySort, "r": KeyResign, "?": KeyHelp, "h": KeyHelp, "q": KeyQuit,
}

// order is an order of the elections.
type order int

const (
	asGiven order = iota
	byName
	byState   // elections without a leader or an answer first
	byChange  // the newest leader first
	byWaiting // the election with the most candidates first
	orderCount
)

func (o order) String() string {
	return [...]string{"as given", "by name", "by state", "by last change", "by candidates"}[o]
}

// State is the state of the screen.
type State struct {
	title         string
	started, now  time.Time
	width, height int
	elections     []election
	note          string   // a problem of the search for elections
	changes       []change // the newest first
	selected      string   // the name of the selected election
	selectedRow   int      // the row of that election
	order         order
	filter        string
	filtering     bool     // keys change the filter
	inQueue       bool     // keys move in the queue of the selected election
	cursor        int      // position in that queue
	unconfirmed   *Request // the user must confirm it
	confirmed     *Request // the user has confirmed it
	help, quit    bool
}

// change is an element of the recent changes.
type change struct {
	at       time.Time
	election string
	text     string
	style    Style
}

// maxChanges is the maximum number of recent changes.
const maxChanges = 200

// election is the last known state of an election.
type election struct {
	name    string
	queue   []Candidate
	missing bool      // the election does not exist
	updated time.Time // the time of this state; zero before the first one
	err     error     // the error of the last request, if it has failed
	// leadsSince is when the leader was first seen to lead. ledBefore reports that this was in the
	// first list, so it may have led before.
	leadsSince time.Time
	ledBefore  bool
}

// New returns the State of elections that were not listed yet.
func New(title string, now time.Time, elections ...string) State {
	s := State{title: title, started: now, now: now, width: 80, height: 24}
	return s.addElections(elections)
}

// Quit reports whether the user wants to quit.
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

// addElections appends elections that are not shown yet.
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

// updateElection applies f to an election, and records the differences.
func (s State) updateElection(name string, at time.Time, f func(election) election) State {
	if at.After(s.now) {
		s.now = at
	}
	s.elections = slices.Clone(s.elections)
	for i, e := range s.elections {
		if e.name == name {
			s.elections[i] = f(e)
			for _, c := range differences(e, s.elections[i]) {
				s = s.recordChange(change{at, name, c.text, c.style})
			}
		}
	}
	return s
}

// differences returns the changes between two states of an election, the oldest first. The first list
// is not a change.
func differences(before, after election) (all []change) {
	add := func(style Style, format string, args ...any) {
		all = append(all, change{text: fmt.Sprintf(format, args...), style: style})
	}
	switch {
	case before.err == nil && after.err != nil:
		add(Warning, "no answer: %v", after.err)
		return all
	case before.updated.IsZero() || after.err != nil:
		return nil
	case before.err != nil:
		add(Plain, "answers again")
	}
	switch {
	case !before.missing && after.missing:
		add(Alarm, "the election was deleted")
		return all
	case before.missing && !after.missing:
		add(Plain, "the election was created")
	}
	contains := func(queue []Candidate, id string) bool {
		return slices.ContainsFunc(queue, func(c Candidate) bool { return c.ID == id })
	}
	for _, c := range before.queue {
		if !contains(after.queue, c.ID) {
			add(Plain, "%s left", c.Name)
		}
	}
	for _, c := range after.queue {
		if !contains(before.queue, c.ID) {
			add(Plain, "%s joined", c.Name)
		}
	}
	switch previous, current := before.leader(), after.leader(); {
	case previous.ID == current.ID:
	case current.ID == "":
		add(Alarm, "no leader")
	default:
		add(Leading, "%s leads, token %d", current.Name, current.Token)
	}
	return all
}

// withCandidates returns the election with new candidates.
func (e election) withCandidates(m Listed) election {
	first := e.updated.IsZero()
	previous := e.leader()
	e.queue, e.updated, e.err, e.missing = m.Candidates, m.At, nil, false
	if first || previous.ID != e.leader().ID {
		e.leadsSince, e.ledBefore = m.At, first
	}
	return e
}

// leader returns the first candidate, or the zero Candidate.
func (e election) leader() Candidate {
	if len(e.queue) == 0 {
		return Candidate{}
	}
	return e.queue[0]
}

// isLeaderless reports whether the election is known to exist without a leader.
func (e election) isLeaderless() bool {
	return !e.updated.IsZero() && !e.missing && len(e.queue) == 0
}

// handleText handles a character: a part of the filter, a confirmation, or a key.
func (s State) handleText(text string) State {
	switch {
	case s.filtering:
		s.filter += text
		return s
	case s.unconfirmed != nil:
		if text == "y" || text == "Y" {
			s.confirmed = s.unconfirmed
			s = s.recordChange(change{s.now, s.confirmed.Election, s.confirmed.Candidate.Name + " was requested to hand over", Plain})
		}
		s.unconfirmed = nil
		return s
	}
	return s.handleKey(characterKeys[text])
}

func (s State) handleKey(k Key) State {
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
	case s.unconfirmed != nil:
		s.unconfirmed = nil
		s.quit = k == KeyQuit
		return s
	}
	position, last := &s.selectedRow, len(s.visibleElections())-1
	if s.inQueue {
		position, last = &s.cursor, len(s.selectedQueue())-1
	}
	switch k {
	case KeyUp:
		*position--
	case KeyDown:
		*position++
	case KeyHome:
		*position = 0
	case KeyEnd:
		*position = last
	case KeySwitch:
		s.inQueue = !s.inQueue
		if s.inQueue {
			s.cursor = 0
		}
	case KeyBack:
		if !s.inQueue {
			s.filter = ""
		}
		s.inQueue = false
	case KeyFilter:
		s.filtering, s.inQueue = true, false
	case KeySort:
		s.order = (s.order + 1) % orderCount
	case KeyResign:
		if queue := s.selectedQueue(); len(queue) > 0 {
			s.unconfirmed = &Request{s.selected, queue[0]}
			if s.inQueue {
				s.unconfirmed.Candidate = queue[s.cursor]
			}
		}
	case KeyHelp:
		s.help = true
	case KeyQuit:
		s.quit = true
	}
	if !s.inQueue && (k == KeyUp || k == KeyDown || k == KeyHome || k == KeyEnd) {
		s.selected = "" // clampSelection selects the election in the row
	}
	return s
}

// visibleElections returns the elections that match the filter, in order.
func (s State) visibleElections() []election {
	visible := slices.Clone(s.elections)
	if s.filter != "" {
		visible = slices.DeleteFunc(visible, func(e election) bool {
			return !strings.Contains(strings.ToLower(e.name+"\n"+e.leader().Name), strings.ToLower(s.filter))
		})
	}
	problemRank := func(e election) int {
		switch {
		case e.isLeaderless():
			return 0
		case e.err != nil:
			return 1
		case e.missing || e.updated.IsZero():
			return 2
		}
		return 3
	}
	slices.SortStableFunc(visible, func(a, b election) int {
		switch s.order {
		case byName:
			return strings.Compare(a.name, b.name)
		case byState:
			return cmp.Compare(problemRank(a), problemRank(b))
		case byChange:
			return b.leadsSince.Compare(a.leadsSince)
		case byWaiting:
			return cmp.Compare(len(b.queue), len(a.queue))
		}
		return 0
	})
	return visible
}

// clampSelection limits the selection to the visible elections and candidates. An election remains
// selected if its row changes.
func (s State) clampSelection() State {
	visible := s.visibleElections()
	if i := slices.IndexFunc(visible, func(e election) bool { return e.name == s.selected }); i >= 0 {
		s.selectedRow = i
	}
	s.selectedRow = max(0, min(s.selectedRow, len(visible)-1))
	s.selected = ""
	if len(visible) > 0 {
		s.selected = visible[s.selectedRow].name
	}
	s.cursor = max(0, min(s.cursor, len(s.selectedQueue())-1))
	return s
}

// selectedQueue returns the candidates of the selected election.
func (s State) selectedQueue() []Candidate {
	for _, e := range s.elections {
		if e.name == s.selected {
			return e.queue
		}
	}
	return nil
}
