package leaderelection_test

import (
	"errors"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection"
)

// eventVerifier verifies the order of the events of a candidate.
type eventVerifier struct {
	run    *scheduleRun
	member *member

	previous leaderelection.EventKind // 0 before the first event
	token    int64
}

// predecessors lists the kinds of events that can precede a kind; 0 is the beginning. No event
// reports that a candidate that is not the leader leaves the queue: EventJoined or EventEnded follows.
var predecessors = map[leaderelection.EventKind][]leaderelection.EventKind{
	leaderelection.EventJoined:    {0, leaderelection.EventJoined, leaderelection.EventLost},
	leaderelection.EventElected:   {leaderelection.EventJoined},
	leaderelection.EventSuspended: {leaderelection.EventElected, leaderelection.EventResumed},
	leaderelection.EventResumed:   {leaderelection.EventSuspended},
	leaderelection.EventLost:      {leaderelection.EventElected, leaderelection.EventResumed, leaderelection.EventSuspended},
	leaderelection.EventEnded:     {0, leaderelection.EventJoined, leaderelection.EventLost},
}

// receive receives and verifies all events of the candidate.
func (v *eventVerifier) receive(events <-chan leaderelection.Event) {
	count := 0
	for e := range events {
		count++
		v.verify(e)
		if v.run.lazy && count%3 == 0 {
			time.Sleep(v.run.timeout / 50)
		}
	}
	if count > 0 && v.previous != leaderelection.EventEnded {
		v.run.history.Violate("%s: the last event was %v", v.member.name, v.previous)
	}
}

func (v *eventVerifier) verify(e leaderelection.Event) {
	h, name := v.run.history, v.member.name
	if e.Missed > 0 && !v.run.lazy {
		h.Violate("%s: %d events were dropped although the reader does not sleep", name, e.Missed)
	}
	hasReason := false
	switch e.Kind {
	case leaderelection.EventChecked, leaderelection.EventWatched:
		return
	case leaderelection.EventHandOver:
		if v.previous != leaderelection.EventElected || e.Token != v.token || e.Duration < 0 {
			h.Violate("%s: event %v after %v", name, e, v.previous)
		}
		return
	case leaderelection.EventSuspended, leaderelection.EventLost, leaderelection.EventEnded:
		hasReason = true
	}
	h.Note("%s: event: %v", name, e)
	switch {
	case !slices.Contains(predecessors[e.Kind], v.previous):
		h.Violate("%s: event %v after %v", name, e, v.previous)
	case e.Kind == leaderelection.EventElected && e.Token <= v.token, e.Kind == leaderelection.EventResumed && e.Token != v.token:
		h.Violate("%s: event %v after token %d", name, e, v.token)
	case hasReason != (e.Err != nil):
		h.Violate("%s: event %v with the reason %v", name, e, e.Err)
	case e.Kind == leaderelection.EventEnded && errors.Is(e.Err, leaderelection.ErrLeaseExpired):
		h.Violate("%s: ended because a lease expired", name)
	}
	v.previous, v.token = e.Kind, max(v.token, e.Token)
}
