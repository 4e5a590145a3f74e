package queue_test

import (
	"errors"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/event"
)

// eventVerifier verifies that the events of a candidate have a valid order.
type eventVerifier struct {
	run    *scheduleRun
	member *member

	previous event.Kind // the kind of the previous event; 0 before the first event
	token    int64
}

// predecessors contains the kinds of events that can precede an event of a kind; 0 means that the event can be the
// first one. No event reports that a candidate that is not the leader leaves the queue: event.Joined or event.Ended
// follows.
var predecessors = map[event.Kind][]event.Kind{
	event.Joined:    {0, event.Joined, event.Lost},
	event.Elected:   {event.Joined},
	event.Suspended: {event.Elected, event.Resumed},
	event.Resumed:   {event.Suspended},
	event.Lost:      {event.Elected, event.Resumed, event.Suspended},
	event.Ended:     {0, event.Joined, event.Lost},
}

// receive receives and verifies all events of the candidate.
func (v *eventVerifier) receive(events <-chan event.Event) {
	count := 0
	for e := range events {
		count++
		v.verify(e)
		if v.run.lazy && count%3 == 0 {
			time.Sleep(v.run.Timeout / 50)
		}
	}
	if count > 0 && v.previous != event.Ended {
		v.run.history.Violate("%s: the last event was %v", v.member.name, v.previous)
	}
}

// verify records a violation if e cannot follow the previous events.
func (v *eventVerifier) verify(e event.Event) {
	h, name := v.run.history, v.member.name
	if e.Missed > 0 && !v.run.lazy {
		h.Violate("%s: %d events were dropped although the reader does not sleep", name, e.Missed)
	}
	hasReason := false
	switch e.Kind {
	case event.Checked, event.Watched:
		return
	case event.HandOver:
		if v.previous != event.Elected || e.Token != v.token || e.Duration < 0 {
			h.Violate("%s: event %v after %v", name, e, v.previous)
		}
		return
	case event.Suspended, event.Lost, event.Ended:
		hasReason = true
	}
	h.Note("%s: event: %v", name, e)
	switch {
	case !slices.Contains(predecessors[e.Kind], v.previous):
		h.Violate("%s: event %v after %v", name, e, v.previous)
	case e.Kind == event.Elected && e.Token <= v.token, e.Kind == event.Resumed && e.Token != v.token:
		h.Violate("%s: event %v follows token %d", name, e, v.token)
	case hasReason != (e.Err != nil):
		h.Violate("%s: event %v with the reason %v", name, e, e.Err)
	case e.Kind == event.Ended && errors.Is(e.Err, leaderelection.ErrLeaseExpired):
		h.Violate("%s: the candidacy has ended because a lease expired", name)
	}
	v.previous, v.token = e.Kind, max(v.token, e.Token)
}
