package electiontest

import (
	"fmt"
	"slices"

	"github.com/go-leaderelection/leaderelection/event"
)

// eventOrder contains, for each kind of event that reports a role, the kinds that can precede it; 0
// means no event. No event is reported if a follower leaves the queue: the next event is event.Joined
// or event.Ended.
var eventOrder = map[event.Kind][]event.Kind{
	event.Joined:    {0, event.Joined, event.Lost},
	event.Elected:   {event.Joined, event.Lost},
	event.Suspended: {event.Elected, event.Resumed},
	event.Resumed:   {event.Suspended},
	event.Lost:      {event.Elected, event.Resumed, event.Suspended},
	event.Ended:     {0, event.Joined, event.Lost},
}

// eventChecker checks the events of a member. The mutex of the suite guards the fields of the checker.
type eventChecker struct {
	last   event.Kind // kind of the last event that reports a role, or 0
	tokens []int64    // tokens of the events of kind event.Elected
	closed bool       // whether the channel is closed
}

// readEvents starts to receive the events of the member. It is called before the candidate starts.
func (m *member) readEvents() {
	events := m.Events()
	m.suite.readers.Go(func() {
		for {
			select {
			case e, open := <-events:
				m.receiveEvent(e, open)
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
func (m *member) receiveEvent(e event.Event, open bool) {
	s, o := m.suite, &m.events
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.broadcastChange()
	if !open {
		o.closed = true
		return
	}
	if e.Time.IsZero() {
		s.Errorf("%s: event %v has no time", m.describe(), e)
	}
	if fault := o.checkNext(e); fault != "" {
		s.Errorf("%s: event %v %s", m.describe(), e, fault)
	}
	// event.Lost must be reported only after the leadership has ended. event.Suspended cannot be checked in the
	// same way: the leader may have become leader again in the meantime, with the same token.
	if e.Kind == event.Lost && m.isLeaderLocked() && m.latest.Token() == e.Token {
		s.Errorf("%s: event %v while the leadership lasts", m.describe(), e)
	}
}

// checkNext checks whether e may follow the events before it. It returns the end of an error message, or "".
func (o *eventChecker) checkNext(e event.Event) string {
	if o.last == event.Ended {
		return "after the end"
	}
	before, ofRole := eventOrder[e.Kind]
	if !ofRole {
		return ""
	}
	last := o.last
	o.last = e.Kind
	reason := slices.Contains([]event.Kind{event.Suspended, event.Lost, event.Ended}, e.Kind)
	newest := int64(0)
	if len(o.tokens) > 0 {
		newest = o.tokens[len(o.tokens)-1]
	}
	if e.Kind == event.Elected {
		o.tokens = append(o.tokens, e.Token)
	}
	switch {
	case !slices.Contains(before, last):
		return fmt.Sprintf("must not follow %v", last)
	case reason != (e.Err != nil):
		return fmt.Sprintf("has the reason %v", e.Err)
	case e.Kind == event.Elected && e.Token <= newest,
		e.Kind == event.Resumed && e.Token != newest:
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
	case o.last != event.Ended:
		s.Errorf("%s: the last event is %v", m.describe(), o.last)
	case m.latest != nil && !slices.Contains(o.tokens, m.latest.Token()):
		s.Errorf("%s: no event reports its leadership: %v", m.describe(), o.tokens)
	}
}
