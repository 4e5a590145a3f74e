package queue

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/limit"
)

// Consume returns a channel of claimed items. The channel is closed after ctx is done. Up
// to Config.Prefetch items are claimed before they are received; items that are not
// received by the end are returned to the queue, and the attempt does not count. An item
// whose claim is lost before it is received is not delivered. Each received item must be
// acknowledged or returned.
//
// The channel is also closed when the queue is closed, when the owner of the connection
// closes it, or when ZooKeeper rejects a necessary request. [Queue.Err] returns the reason.
func (q *Queue) Consume(ctx context.Context) <-chan Item {
	items := make(chan Item)
	if err := q.begin(); err != nil {
		q.ended(err)
		close(items)
		return items
	}
	go func() {
		defer q.busy.Done()
		defer close(items)
		q.consume(ctx, items)
	}()
	return items
}

// ended notes why a channel is closed before its context has ended.
func (q *Queue) ended(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.failed = q.fail("consume", err)
}

// consumer is one call of Consume.
type consumer struct {
	*Queue
	answers chan answer
	asked   []*want
	unread  []Item
}

func (q *Queue) consume(ctx context.Context, out chan<- Item) {
	c := &consumer{Queue: q, answers: make(chan answer, q.cfg.Prefetch)}
	defer c.giveBackUnread()
	for {
		if err := c.askForMore(); err != nil {
			q.ended(err)
			return
		}
		// Without an item both channels are nil.
		var offer chan<- Item
		var head Item
		var lost <-chan struct{}
		if len(c.unread) > 0 {
			offer, head = out, c.unread[0]
			lost = head.Done()
			if head.Err() != nil {
				offer = nil
			}
		}
		select {
		case a := <-c.answers:
			c.asked = c.asked[1:]
			if a.err != nil {
				q.ended(a.err)
				return
			}
			c.unread = append(c.unread, a.items...)
		case offer <- head:
			head.d.read.Store(true)
			c.unread = c.unread[1:]
		case <-lost: // the guard gives it back
			c.unread = c.unread[1:]
		case <-ctx.Done():
			return
		case <-q.ctx.Done(): // the feed may be waiting for ZooKeeper
			q.ended(ErrClosed)
			return
		}
	}
}

// askForMore asks for as many items as may be claimed before they are read.
func (c *consumer) askForMore() error {
	for len(c.asked)+len(c.unread) < c.cfg.Prefetch {
		w := &want{n: 1, answers: c.answers}
		if err := c.ask(w); err != nil {
			return err
		}
		c.asked = append(c.asked, w)
	}
	return nil
}

func (c *consumer) giveBackUnread() {
	for _, w := range c.asked {
		if !c.withdraw(w) {
			a := <-c.answers
			c.unread = append(c.unread, a.items...)
		}
	}
	var givingBack sync.WaitGroup
	for _, i := range c.unread {
		i.d.end(errUnread)
		c.release(i.d)
		givingBack.Go(func() { c.giveBack(i.d) })
	}
	done := make(chan struct{})
	c.busy.Go(func() {
		givingBack.Wait()
		close(done)
	})
	timer := time.NewTimer(limit.Confirm)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

var errUnread = errors.New("queue: the item was not received")
