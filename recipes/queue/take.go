package queue

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Take claims an item, and blocks until one is available, also while ZooKeeper does not
// answer and across sessions. If the context is done first, Take returns its cause
// immediately, and a claim in progress is released in the background. Other errors:
// [recipes.ErrClosed], [recipes.ErrConnClosed], [recipes.ErrPermission], and [recipes.ErrTooLarge] if
// the names of all items together exceed the connection's receive buffer.
//
// An item that this consumer cannot claim or read, for example because it is larger than
// the connection accepts, does not end the call. It is skipped and a warning is logged
// once. The consumer tries it again after 100 ms, and after twice that time with each
// further failure, up to a minute. Each read that fails counts as an attempt. After
// as many attempts as [WithMaxAttempts] allows, the item becomes a [DeadLetter] and keeps its data.
func (q *Queue) Take(ctx context.Context) (*Item, error) {
	items, err := q.takeItems(ctx, 1, false)
	if err != nil {
		return nil, err
	}
	return items[0], nil
}

// TryTake is like Take, but does not wait for items: it returns [ErrEmpty] if all due items
// are claimed or skipped, or were returned and are delayed (see [Item.Return]). TryTake still waits for ZooKeeper.
func (q *Queue) TryTake(ctx context.Context) (*Item, error) {
	items, err := q.takeItems(ctx, 1, true)
	if err != nil {
		return nil, err
	}
	return items[0], nil
}

// TakeUpTo is like Take, but returns between one and n items. It does not wait for more than
// one, and can return fewer than are available: it returns the items that were claimed
// together, which are up to 8 at first, up to 64 later, and fewer if other consumers claim
// the same items.
func (q *Queue) TakeUpTo(ctx context.Context, n int) ([]*Item, error) {
	if n < 1 {
		return nil, q.wrapError("take from", fmt.Errorf("%w: TakeUpTo(%d): must be at least 1", connection.ErrInvalid, n))
	}
	return q.takeItems(ctx, n, false)
}

// takeItems takes up to n items. If try is set, it returns ErrEmpty instead of waiting for items.
func (q *Queue) takeItems(ctx context.Context, n int, try bool) ([]*Item, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, q.wrapError("take from", err)
	}
	results := make(chan takeResult, 1)
	r := &takeRequest{n: n, try: try, results: results}
	if err := q.addRequest(r); err != nil {
		return nil, q.wrapError("take from", err)
	}
	var result takeResult
	select {
	case result = <-results:
	case <-ctx.Done():
		if q.withdrawRequest(r) {
			return nil, q.wrapError("take from", context.Cause(ctx))
		}
		result = <-results // the result was sent at the same time
	case <-q.ctx.Done(): // the dispatcher may be waiting for ZooKeeper
		if q.withdrawRequest(r) {
			return nil, q.wrapError("take from", recipes.ErrClosed)
		}
		result = <-results
	}
	for _, i := range result.items {
		i.d.receive()
	}
	return result.items, q.wrapError("take from", result.err)
}

// takeRequest is a request for one to n items.
type takeRequest struct {
	n int
	// try is set if the request fails with ErrEmpty instead of waiting for items.
	try bool
	// results receives the result. It has capacity for the result, so that the dispatcher does not block.
	results chan<- takeResult
	number  uint64
}

type takeResult struct {
	items []*Item
	err   error
}

// addRequest adds a request. The dispatcher answers it once, unless it is withdrawn.
func (q *Queue) addRequest(r *takeRequest) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.closedErr(); err != nil {
		return err
	}
	if q.dispatcher == nil {
		q.sub = q.setup.Subscribe()
		q.dispatcher = newDispatcher(q)
		q.running.Go(q.monitorLease)
		q.running.Go(q.dispatcher.run)
	}
	q.lastRequest++
	r.number = q.lastRequest
	q.requests = append(q.requests, r)
	q.wakeDispatcher()
	return nil
}

// withdrawRequest removes a request. It returns false if the request was answered.
func (q *Queue) withdrawRequest(r *takeRequest) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.requests, r)
	if i >= 0 {
		q.requests = slices.Delete(q.requests, i, i+1)
	}
	return i >= 0
}

// requestedItems returns how many items are requested, and the number of the last request of TryTake, or 0. It
// counts at most maxBatch items for each request.
func (q *Queue) requestedItems() (n int, lastTry uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range q.requests {
		n += min(r.n, maxBatch) // without the limit, the sum could overflow
		if r.try {
			lastTry = r.number
		}
	}
	return n, lastTry
}

// failRequests answers all requests with err.
func (q *Queue) failRequests(err error) {
	q.failRequestsIf(err, func(*takeRequest) bool { return true })
}

// failTries answers the requests of TryTake with numbers up to last with ErrEmpty.
func (q *Queue) failTries(last uint64) {
	q.failRequestsIf(ErrEmpty, func(r *takeRequest) bool { return r.try && r.number <= last })
}

// failRequestsIf answers the requests for which selected returns true with err.
func (q *Queue) failRequestsIf(err error, selected func(*takeRequest) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.requests = slices.DeleteFunc(q.requests, func(r *takeRequest) bool {
		if !selected(r) {
			return false
		}
		r.results <- takeResult{err: err}
		return true
	})
}

// answerRequests answers requests with the items ds, and returns the items for which no request is left.
func (q *Queue) answerRequests(ds []*delivery) (rest []*delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(ds) > 0 && len(q.requests) > 0 && !q.closing {
		r := q.requests[0]
		q.requests = q.requests[1:]
		var items []*Item
		for len(ds) > 0 && len(items) < r.n {
			items = append(items, &Item{ds[0]})
			ds = ds[1:]
		}
		r.results <- takeResult{items: items}
	}
	return ds
}
