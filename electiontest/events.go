package electiontest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/go-leaderelection/leaderelection"
)

// eventOrder lists the kinds of events of a role that can precede a kind; 0 is the beginning.
// There is no event if a follower leaves the queue: the next one is EventJoined or EventEnded.
var eventOrder = map[leaderelection.EventKind][]leaderelection.EventKind{
	leaderelection.EventJoined:    {0, leaderelection.EventJoined, leaderelection.EventLost},
	leaderelection.EventElected:   {leaderelection.EventJoined, leaderelection.EventLost},
	leaderelection.EventSuspended: {leaderelection.EventElected, leaderelection.EventResumed},
	leaderelection.EventResumed:   {leaderelection.EventSuspended},
	leaderelection.EventLost:      {leaderelection.EventElected, leaderelection.EventResumed, leaderelection.EventSuspended},
	leaderelection.EventEnded:     {0, leaderelection.EventJoined, leaderelection.EventLost},
}

// observer checks the events of a member. Its fields are guarded by the suite's mu.
type observer struct {
	last   leaderelection.EventKind // of a role; 0 before the first
	tokens []int64                  // of EventElected
	closed bool                     // the channel
}

// observe receives the events of the member. It is called before the candidate starts.
func (m *member) observe() {
	events := m.Events()
	m.s.readers.Go(func() {
		for {
			select {
			case event, open := <-events:
				m.observed(event, open)
				if !open {
					return
				}
			case <-m.s.over:
				return
			}
		}
	})
}

// observed checks an event.
func (m *member) observed(event leaderelection.Event, open bool) {
	s, o := m.s, &m.observer
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.signal()
	if !open {
		o.closed = true
		return
	}
	if event.Time.IsZero() {
		s.Errorf("%s: event %v has no time", m.text(), event)
	}
	if fault := o.next(event); fault != "" {
		s.Errorf("%s: event %v %s", m.text(), event, fault)
	}
	// A leadership has ended before that is reported. A suspended one may have been resumed
	// since, with the same token.
	if event.Kind == leaderelection.EventLost && m.leads() && m.lead.Token() == event.Token {
		s.Errorf("%s: event %v while the leadership lasts", m.text(), event)
	}
}

// next records an event. It returns what is wrong with it, or "".
func (o *observer) next(event leaderelection.Event) string {
	if o.last == leaderelection.EventEnded {
		return "after the end"
	}
	before, ofRole := eventOrder[event.Kind]
	if !ofRole {
		return ""
	}
	last := o.last
	o.last = event.Kind
	reason := slices.Contains([]leaderelection.EventKind{leaderelection.EventSuspended, leaderelection.EventLost, leaderelection.EventEnded}, event.Kind)
	newest := int64(0)
	if len(o.tokens) > 0 {
		newest = o.tokens[len(o.tokens)-1]
	}
	if event.Kind == leaderelection.EventElected {
		o.tokens = append(o.tokens, event.Token)
	}
	switch {
	case !slices.Contains(before, last):
		return fmt.Sprintf("follows %v", last)
	case reason != (event.Err != nil):
		return fmt.Sprintf("has the reason %v", event.Err)
	case event.Kind == leaderelection.EventElected && event.Token <= newest,
		event.Kind == leaderelection.EventResumed && event.Token != newest:
		return fmt.Sprintf("has a token that must not follow %d", newest)
	}
	return ""
}

// checkEvents checks the events of a candidacy that is over.
func (m *member) checkEvents() {
	s, o := m.s, &m.observer
	if !s.reached(resignLimit, func() bool { return o.closed }) {
		s.Errorf("%v: the channel of events is not closed", m)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case errors.Is(m.err, leaderelection.ErrCandidacyOver): // it resigned before it started
	case o.last != leaderelection.EventEnded:
		s.Errorf("%s: the last event is %v", m.text(), o.last)
	case m.lead != nil && !slices.Contains(o.tokens, m.lead.Token()):
		s.Errorf("%s: no event reports its leadership: %v", m.text(), o.tokens)
	}
}
