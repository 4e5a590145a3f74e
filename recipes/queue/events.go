package queue

import (
	"context"
	"errors"
	"time"

	"github.com/go-leaderelection/leaderelection/event"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// receive records that the program receives the item, and reports it, and later the end of the delivery.
func (d *delivery) receive() {
	d.received.Store(true)
	if d.q.setup.Events == nil {
		return
	}
	received := time.Now()
	e := event.Event{Kind: event.Acquired, Subject: d.name, Token: d.token}
	if leader, _, known := d.q.writer.LeaderTime(); known {
		e.Duration = max(0, leader.Sub(time.UnixMilli(d.ctime)))
	}
	d.q.setup.Report("queue", e)
	context.AfterFunc(d.grant.Context(), func() {
		e := d.ending
		e.Subject, e.Token, e.Duration = d.name, d.token, time.Since(received)
		if e.Kind == 0 {
			switch cause := context.Cause(d.grant.Context()); {
			case errors.Is(cause, errUnread): // Handle returns it without an attempt
				e.Kind = event.Returned
			default:
				e.Kind, e.Err = event.Lost, connection.Refine(d.q.conn, cause)
			}
		}
		d.q.setup.Report("queue", e)
	})
}

// event is the event with which the completion ends a delivery.
func (c *completion) event() event.Event {
	switch {
	case c.toDeadLetters && c.cause == nil:
		return event.Event{Kind: event.Rejected, Err: errors.New(c.reason)}
	case c.toDeadLetters:
		return event.Event{Kind: event.Rejected, Err: c.cause}
	case c.as == errReturned:
		return event.Event{Kind: event.Returned, Err: c.cause}
	}
	return event.Event{Kind: event.Released}
}
