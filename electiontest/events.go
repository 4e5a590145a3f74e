package electiontest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/go-leaderelection/leaderelection"
)

// eventOrder contains, for each kind of event that reports a role, the kinds that can precede it; 0
// means no event. No event is reported if a follower leaves the queue: the next event is EventJoined
// or EventEnded.
var eventOrder = map[leaderelection.EventKind][]leaderelection.EventKind{
	leaderelection.EventJoined:    {0, leaderelection.EventJoined, leaderelection.EventLost},
	leaderelection.EventElected:   {leaderelection.EventJoined, leaderelection.EventLost},
	leaderelection.EventSuspended: {leaderelection.EventElected, leaderelection.EventResumed},
	leaderelection.EventResumed:   {leaderelection.EventSuspended},
	leaderelection.EventLost:      {leaderelection.EventElected, leaderelection.EventResumed, leaderelection.EventSuspended},
	leaderelection.EventEnded:     {0, leaderelection.EventJoined, leaderelection.EventLost},
}

// eventChecker checks the events of a member. The lock of the suite guards its fields.
type eventChecker struct {
	last   leaderelection.EventKind // the last event that reports a role, or 0
	tokens []int64                  // the tokens of EventElected
	closed bool                     // whether the channel is closed
}

// readEvents starts to receive the events of the member. It is called before the candidate starts.
func (m *member) readEvents() {
	events := m.Events()
	m.suite.readers.Go(func() {
		for {
			select {
			case event, open := <-events:
				m.receiveEvent(event, open)
				if !open {
					return
				}
			case <-m.suite.done:
				return
			}
		}
	})
}

// receiveEvent checks an event, or the close of the channel.
func (m *member) receiveEvent(event leaderelection.Event, open bool) {
	s, o := m.suite, &m.events
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.broadcastChange()
	if !open {
		o.closed = true
		return
	}
	if event.Time.IsZero() {
		s.Errorf("%s: event %v has no time", m.describe(), event)
	}
	if fault := o.checkNext(event); fault != "" {
		s.Errorf("%s: event %v %s", m.describe(), event, fault)
	}
	// An event is reported after the leadership has ended. A suspended leader may have become leader
	// again since, with the same token.
	if event.Kind == leaderelection.EventLost && m.isLeaderLocked() && m.latest.Token() == event.Token {
		s.Errorf("%s: event %v while the leadership lasts", m.describe(), event)
	}
}

// checkNext checks the order of an event. It returns an error message, or "".
func (o *eventChecker) checkNext(event leaderelection.Event) string {
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

// checkEvents checks, after the candidacy, that the events are complete.
func (m *member) checkEvents() {
	s, o := m.suite, &m.events
	if !s.waitUntil(resignLimit, func() bool { return o.closed }) {
		s.Errorf("%v: the channel of events is not closed", m)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case errors.Is(m.err, leaderelection.ErrCandidacyOver): // the candidate resigned before it was started
	case o.last != leaderelection.EventEnded:
		s.Errorf("%s: the last event is %v", m.describe(), o.last)
	case m.latest != nil && !slices.Contains(o.tokens, m.latest.Token()):
		s.Errorf("%s: no event reports its leadership: %v", m.describe(), o.tokens)
	}
}
