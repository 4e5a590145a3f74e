package queue

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Consume returns a channel of claimed items. The channel is closed after ctx is done. As
// many items as [WithPrefetch] sets are claimed before they are received; items that are not
// received by the end are returned to the queue, and the attempt does not count. An item
// whose claim is lost before it is received is not delivered. Each received item must be
// acknowledged or returned.
//
// The channel is also closed when the queue is closed, when the owner of the connection
// closes it, or when ZooKeeper rejects a necessary request. [Queue.Err] returns the reason.
// An item that cannot be claimed or read does not close the channel: see [Queue.Take].
func (q *Queue) Consume(ctx context.Context) <-chan Item {
	items := make(chan Item)
	if err := q.startCall(); err != nil {
		q.setConsumeErr(err)
		close(items)
		return items
	}
	go func() {
		defer q.running.Done()
		defer close(items)
		c := &consumer{q: q, results: make(chan takeResult, q.cfg.prefetch)}
		defer c.returnUnread()
		if err := c.deliverItems(ctx, items); err != nil {
			q.setConsumeErr(err)
		}
	}()
	return items
}

func (q *Queue) setConsumeErr(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.consumeErr = q.wrapError("consume", err)
}

// consumer implements one call of Consume. It belongs to the goroutine of the call.
type consumer struct {
	q       *Queue
	results chan takeResult
	// requests are the requests that were not answered yet, in order.
	requests []*takeRequest
	// unread are the items that the program has not received yet.
	unread []Item
}

// deliverItems sends items until ctx is done. It returns the reason if it ends before.
func (c *consumer) deliverItems(ctx context.Context, out chan<- Item) error {
	for {
		if err := c.requestItems(); err != nil {
			return err
		}
		// If there is no item, both channels are nil.
		var send chan<- Item
		var next Item
		var lost <-chan struct{}
		if len(c.unread) > 0 {
			next = c.unread[0]
			lost = next.Done()
			if next.Err() == nil {
				send = out
			}
		}
		select {
		case r := <-c.results:
			c.requests = c.requests[1:]
			if r.err != nil {
				return r.err
			}
			c.unread = append(c.unread, r.items...)
		case send <- next:
			next.d.received.Store(true)
			c.unread = c.unread[1:]
		case <-lost: // monitorLease returns the item to the queue
			c.unread = c.unread[1:]
		case <-ctx.Done():
			return nil
		case <-c.q.ctx.Done(): // the dispatcher may be waiting for ZooKeeper
			return recipes.ErrClosed
		}
	}
}

// requestItems requests as many items as may be claimed before they are received.
func (c *consumer) requestItems() error {
	for len(c.requests)+len(c.unread) < c.q.cfg.prefetch {
		r := &takeRequest{n: 1, results: c.results}
		if err := c.q.addRequest(r); err != nil {
			return err
		}
		c.requests = append(c.requests, r)
	}
	return nil
}

// returnUnread withdraws the requests and returns the items that were not received to the queue.
func (c *consumer) returnUnread() {
	for _, r := range c.requests {
		if !c.q.withdrawRequest(r) {
			result := <-c.results
			c.unread = append(c.unread, result.items...)
		}
	}
	var returning sync.WaitGroup
	for _, i := range c.unread {
		i.d.end(errUnread)
		c.q.removeDelivery(i.d)
		returning.Go(func() { c.q.returnClaim(i.d) })
	}
	done := make(chan struct{})
	c.q.running.Go(func() {
		returning.Wait()
		close(done)
	})
	limit.Await(done, time.Now().Add(limit.Confirm))
}

var errUnread = errors.New("queue: the item was not received")
