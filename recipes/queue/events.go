package queue

import (
	"context"
	"errors"
	"time"

	"github.com/go-leaderelection/leaderelection/event"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// receive records that the program receives the item. It emits an event now, and another event after
// the delivery.
func (d *delivery) receive() {
	d.receivedAt = time.Now()
	d.received.Store(true)
	if d.q.setup.Events == nil {
		return
	}
	e := event.Event{Kind: event.Acquired, Subject: d.name, Token: d.token}
	if leader, _, known := d.q.writer.LeaderTime(); known {
		e.Duration = max(0, leader.Sub(time.UnixMilli(d.ctime)))
	}
	d.q.setup.Report("queue", e)
	context.AfterFunc(d.grant.Context(), func() {
		switch cause := context.Cause(d.grant.Context()); cause {
		case errSettled: // reportEnds emits the event when the outcome is known
		case errUnread: // the program has not received the item, and the attempt does not count
			d.reportEnd(event.Event{Kind: event.Returned})
		default:
			d.reportEnd(event.Event{Kind: event.Lost, Err: connection.Refine(d.q.conn, cause)})
		}
	})
}

// reportEnd emits the event e for the end of a delivery that the program has received.
func (d *delivery) reportEnd(e event.Event) {
	e.Subject, e.Token, e.Duration = d.name, d.token, time.Since(d.receivedAt)
	d.q.setup.Report("queue", e)
}

// reportEnds emits events for the deliveries that the completion has ended, when the outcome is known. If a
// delivery was lost before, receive emits the event.
func (c *completion) reportEnds() {
	for _, d := range c.finished {
		if context.Cause(d.grant.Context()) == errSettled {
			d.reportEnd(c.event(d))
		}
	}
}

// event returns the event for a delivery that the completion has ended.
func (c *completion) event(d *delivery) event.Event {
	switch {
	case d.completed != c.as:
		return event.Event{Kind: event.Lost, Err: d.completed}
	case c.as == errAcknowledged:
		return event.Event{Kind: event.Released}
	// The completion has failed, so the claim is deleted and the item returns to the queue.
	case !c.toDeadLetters || c.err != nil:
		return event.Event{Kind: event.Returned, Err: c.cause}
	case c.cause == nil:
		return event.Event{Kind: event.Rejected, Err: errors.New(c.reason)}
	}
	return event.Event{Kind: event.Rejected, Err: c.cause}
}
