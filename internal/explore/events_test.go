package explore

import (
	"errors"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection"
)

// eventLog checks that the events of a candidate have a valid order.
type eventLog struct {
	w *world
	c *candidate

	last  leaderelection.EventKind // 0 before the first
	token int64
}

// before lists the kinds of events that can precede a kind; 0 is the beginning. There is no
// event if a candidate that does not lead leaves the queue: the next one is Joined or Ended.
var before = map[leaderelection.EventKind][]leaderelection.EventKind{
	leaderelection.EventJoined:    {0, leaderelection.EventJoined, leaderelection.EventLost},
	leaderelection.EventElected:   {leaderelection.EventJoined},
	leaderelection.EventSuspended: {leaderelection.EventElected, leaderelection.EventResumed},
	leaderelection.EventResumed:   {leaderelection.EventSuspended},
	leaderelection.EventLost:      {leaderelection.EventElected, leaderelection.EventResumed, leaderelection.EventSuspended},
	leaderelection.EventEnded:     {0, leaderelection.EventJoined, leaderelection.EventLost},
}

// read receives all events of the candidate.
func (l *eventLog) read(events <-chan leaderelection.Event) {
	count := 0
	for e := range events {
		count++
		l.check(e)
		if l.w.lazy && count%3 == 0 {
			time.Sleep(l.w.timeout / 50) // a reader that is busy with something else
		}
	}
	if count > 0 && l.last != leaderelection.EventEnded {
		l.w.violation("%s: the last event was %v", l.c.name, l.last)
	}
}

func (l *eventLog) check(e leaderelection.Event) {
	if e.Missed > 0 && !l.w.lazy {
		l.w.violation("%s: %d events were missed by a reader that does not wait", l.c.name, e.Missed)
	}
	var reason bool
	switch e.Kind {
	case leaderelection.EventChecked, leaderelection.EventWatched:
		return
	case leaderelection.EventHandOver:
		if l.last != leaderelection.EventElected || e.Token != l.token || e.Duration < 0 {
			l.w.violation("%s: event %v after %v", l.c.name, e, l.last)
		}
		return
	case leaderelection.EventSuspended, leaderelection.EventLost, leaderelection.EventEnded:
		reason = true
	}
	l.w.note("%s: event: %v", l.c.name, e)
	switch {
	case !slices.Contains(before[e.Kind], l.last):
		l.w.violation("%s: event %v after %v", l.c.name, e, l.last)
	case e.Kind == leaderelection.EventElected && e.Token <= l.token, e.Kind == leaderelection.EventResumed && e.Token != l.token:
		l.w.violation("%s: event %v after token %d", l.c.name, e, l.token)
	case reason != (e.Err != nil):
		l.w.violation("%s: event %v with the reason %v", l.c.name, e, e.Err)
	case e.Kind == leaderelection.EventEnded && errors.Is(e.Err, leaderelection.ErrLeaseExpired):
		l.w.violation("%s: ended because a lease expired", l.c.name)
	}
	l.last, l.token = e.Kind, max(l.token, e.Token)
}
