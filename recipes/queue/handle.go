package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// HandleOption is an option of [Queue.Handle]: [WithWorkers] or [WithBackoff].
type HandleOption interface{ applyHandle(*handleSettings) error }

type handleSettings struct {
	workers int
	backoff func(attempt int) time.Duration
}

type handleOption func(*handleSettings) error

func (o handleOption) applyHandle(s *handleSettings) error { return o(s) }

// WithWorkers sets the number of calls of the handler at a time. The default is 1.
func WithWorkers(n int) HandleOption {
	return handleOption(func(s *handleSettings) error {
		if n < 1 {
			return fmt.Errorf("%w: queue.WithWorkers(%d): must be positive", recipes.ErrInvalid, n)
		}
		s.workers = n
		return nil
	})
}

// WithBackoff sets how long an item is delayed after a failed attempt, which is 1 for the first. f must not block.
// With 0 or less, the item is available immediately, except to this consumer: see [Item.Return]. The default is
// [Backoff].
func WithBackoff(f func(attempt int) time.Duration) HandleOption {
	return handleOption(func(s *handleSettings) error {
		if f == nil {
			return fmt.Errorf("%w: queue.WithBackoff: the function is nil", recipes.ErrInvalid)
		}
		s.backoff = f
		return nil
	})
}

// Backoff returns the delay of an item after a failed attempt, which is 1 for the first: 100 ms after the first, twice
// as long after each further one, and a minute at most.
func Backoff(attempt int) time.Duration {
	return min(minRetryDelay<<min(max(attempt, 1)-1, 16), maxRetryDelay)
}

// Handle takes items and calls f for each, until ctx is done; it then waits for the calls in progress, and returns
// nil. If f returns nil, Handle acknowledges the item. If f returns an error, Handle returns the item to the queue
// with the error as the cause, and no consumer receives it before a delay has passed that grows with its attempts
// ([WithBackoff]). The delay is stored together with the return, so it also applies after a restart. f can return
// an error of [Later], which has a delay, or of [Reject], with which the item becomes a dead letter immediately.
// The context of f ends when the claim of the item is lost or ctx is done: f must then return soon. If f returns
// an error after ctx is done, the item is returned, and the attempt does not count.
//
// f may acknowledge or return the item itself, for example by Ack with operations of the same transaction. An item
// whose acknowledgement or return is not confirmed may be delivered again, and a warning is logged. An item whose
// acknowledgement is rejected, for example with [ErrParts], is returned with a delay.
//
// Errors are [recipes.ErrInvalid] and the errors with which a loop over [Queue.Items] ends.
func (q *Queue) Handle(ctx context.Context, f func(ctx context.Context, i *Item) error, opts ...HandleOption) error {
	s := handleSettings{workers: 1, backoff: Backoff}
	if err := recipe.EachOption(opts, func(opt HandleOption) error { return opt.applyHandle(&s) }); err != nil {
		return q.wrapError("handle items of", err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	results := make(chan error, s.workers)
	var workers sync.WaitGroup
	for range s.workers {
		workers.Go(func() {
			defer stop() // an error of one worker ends all workers
			results <- q.handleItems(ctx, f, s.backoff)
		})
	}
	workers.Wait()
	var err error
	for range s.workers {
		err = cmp.Or(err, <-results)
	}
	return err
}

// handleItems is one worker: it calls f for the items of a loop over Items.
func (q *Queue) handleItems(ctx context.Context, f func(context.Context, *Item) error, backoff func(int) time.Duration) error {
	for item, err := range q.Items(ctx) {
		if err != nil {
			return err
		}
		q.handleItem(ctx, item, f, backoff)
	}
	return nil
}

// handleItem calls f for one item, and acknowledges or returns the item.
func (q *Queue) handleItem(ctx context.Context, item *Item, f func(context.Context, *Item) error, backoff func(int) time.Duration) {
	work, end := connection.Work(item.Context(), ctx)
	defer end(nil)
	failure := f(work, item)
	over := item.Err()
	var err error
	switch {
	case errors.Is(over, recipes.ErrReleased): // the function f has acknowledged or returned the item
	case failure == nil:
		err = item.Ack()
		// Return the item if the acknowledgement is rejected. Otherwise the claim would remain.
		if err != nil && item.Err() == nil && !errors.Is(err, recipes.ErrUnconfirmed) {
			err = errors.Join(err, item.Return(Later(backoff(item.Attempt()), err)))
		}
	case ctx.Err() != nil && !isRejection(failure):
		item.d.received.Store(false)
		q.returnUnread([]*Item{item})
	case isPostponement(failure) || isRejection(failure):
		err = item.Return(failure)
	default:
		err = item.Return(Later(backoff(item.Attempt()), failure))
	}
	if err != nil {
		q.log.Warn("an item may be delivered again", "item", item.ID(), "failure", failure, "err", err)
	}
}

// Reject returns an error for the handler of an item that will fail in each attempt, such as one with malformed
// data: the item becomes a dead letter immediately, with cause as its reason.
func Reject(cause error) error { return &rejection{cause} }

type rejection struct{ cause error }

func (r *rejection) Error() string {
	if r.cause == nil {
		return "rejected"
	}
	return r.cause.Error()
}

func (r *rejection) Unwrap() error { return r.cause }

func isRejection(err error) bool {
	var r *rejection
	return errors.As(err, &r)
}
