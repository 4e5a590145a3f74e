package queue

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Items returns an iterator over items that it claims. The loop's body, or another goroutine later, must
// acknowledge or return each item. The loop waits for items, across sessions, and ends after ctx is done.
// Otherwise its last element is an error without an item: [recipes.ErrClosed], [recipes.ErrConnClosed], or the
// error of a necessary request that ZooKeeper rejects. An item that cannot be claimed or read does not end the
// loop: see [Queue.Take].
//
// As many items as [WithPrefetch] sets are claimed before the loop reaches them. If the loop ends, for any
// reason, the items that it has not reached are returned to the queue, and their attempts do not count; the
// return takes at most two seconds. The loop skips an item whose claim is lost before the loop reaches it.
// Several goroutines may each have a loop.
func (q *Queue) Items(ctx context.Context) iter.Seq2[*Item, error] {
	return func(yield func(*Item, error) bool) {
		c := &consumer{q: q, results: make(chan takeResult, q.cfg.prefetch)}
		defer c.returnUnread()
		if err := c.deliverItems(ctx, yield); err != nil {
			yield(nil, q.wrapError("consume items of", err))
		}
	}
}

// consumer is one loop over Items. It belongs to the goroutine of the loop.
type consumer struct {
	q       *Queue
	results chan takeResult
	// requests contains the requests that were not answered yet, the oldest first.
	requests []*takeRequest
	// unread contains the items that the loop has not reached yet.
	unread []*Item
}

// deliverItems calls yield with items until yield returns false or ctx is done. If the loop ends for another
// reason, deliverItems returns the reason.
func (c *consumer) deliverItems(ctx context.Context, yield func(*Item, error) bool) error {
	for ctx.Err() == nil {
		var next *Item
		if len(c.unread) > 0 {
			next, c.unread = c.unread[0], c.unread[1:]
		}
		// Request further items now, so that they are claimed while the loop's body runs.
		if err := c.requestItems(); err != nil {
			return err // Close of the queue returns the unread items, including next
		}
		if next != nil && next.Err() == nil { // skip an item whose claim was lost: monitorLease returns it to the queue
			next.d.receive()
			if !yield(next, nil) {
				return nil
			}
		}
		if len(c.unread) > 0 {
			continue
		}
		select {
		case r := <-c.results:
			c.requests = c.requests[1:]
			if r.err != nil {
				return r.err
			}
			c.unread = append(c.unread, r.items...)
		case <-ctx.Done():
		case <-c.q.ctx.Done(): // do not wait for the dispatcher, which may be waiting for ZooKeeper
			return recipes.ErrClosed
		}
	}
	return nil
}

// requestItems requests items until the requests and the unread items together are as many as WithPrefetch
// allows.
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

// returnUnread withdraws the requests, and returns the items that the loop has not reached to the queue.
func (c *consumer) returnUnread() {
	for _, r := range c.requests {
		if !c.q.withdrawRequest(r) {
			result := <-c.results
			c.unread = append(c.unread, result.items...)
		}
	}
	c.q.returnUnread(c.unread)
}

// returnUnread returns items that the program has not received to the queue, and makes sure that their attempts do
// not count. It waits for the servers for a limited time.
func (q *Queue) returnUnread(items []*Item) {
	if len(items) == 0 || q.startCall() != nil {
		return // Close returns the items
	}
	var returning sync.WaitGroup
	for _, i := range items {
		i.d.grant.End(errUnread)
		q.removeDelivery(i.d)
		returning.Go(func() { q.returnClaim(i.d) })
	}
	done := make(chan struct{})
	go func() {
		defer q.running.Done()
		returning.Wait()
		close(done)
	}()
	limit.Await(done, time.Now().Add(limit.Confirm))
}

// errUnread is the reason with which the delivery of an item ends that the program has not received.
var errUnread = errors.New("queue: the item was not received")
