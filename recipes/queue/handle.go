package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-leaderelection/leaderelection/internal/grant"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// HandleOption is an option of [Queue.Handle]: [WithWorkers].
type HandleOption interface{ applyHandle(*handleSettings) error }

type handleSettings struct{ workers int }

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

// Handle takes items and calls f for each, until ctx is done; it then waits for the calls in progress, and
// returns nil. If f returns nil, the item is acknowledged. If it returns an error, the item is returned to the
// queue with the error as its cause, and delivered again after a delay that grows with its attempts (see
// [Item.Return]); with an error of [Reject], it becomes a dead letter at once. The context of f ends when the
// claim of the item is lost or ctx is done: f must then return soon. If it returns an error after ctx is done, the
// item is returned, and the attempt does not count.
//
// f may acknowledge or return the item itself, for example by Ack with operations of the same transaction. An item
// whose acknowledgement or return is not confirmed may be delivered again, and a warning is logged.
//
// Errors are [recipes.ErrInvalid] and those with which a loop over [Queue.Items] ends.
func (q *Queue) Handle(ctx context.Context, f func(ctx context.Context, i *Item) error, opts ...HandleOption) error {
	s := handleSettings{workers: 1}
	if err := recipe.EachOption(opts, func(opt HandleOption) error { return opt.applyHandle(&s) }); err != nil {
		return q.wrapError("handle", err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	results := make(chan error, s.workers)
	var workers sync.WaitGroup
	for range s.workers {
		workers.Go(func() {
			defer stop() // an error of one worker ends all
			results <- q.handleItems(ctx, f)
		})
	}
	workers.Wait()
	var err error
	for range s.workers {
		err = cmp.Or(err, <-results)
	}
	return err
}

// handleItems is one worker.
func (q *Queue) handleItems(ctx context.Context, f func(context.Context, *Item) error) error {
	for item, err := range q.Items(ctx) {
		if err != nil {
			return err
		}
		q.handleItem(ctx, item, f)
	}
	return nil
}

func (q *Queue) handleItem(ctx context.Context, item *Item, f func(context.Context, *Item) error) {
	work, end := grant.Work(item.Context(), ctx)
	defer end(nil)
	failure := f(work, item)
	over := item.Err()
	var err error
	switch {
	case errors.Is(over, recipes.ErrReleased): // by f
	case failure == nil:
		err = item.Ack()
	case ctx.Err() != nil && !isRejection(failure):
		item.d.received.Store(false)
		q.returnUnread([]*Item{item})
	default:
		err = item.Return(failure)
	}
	if err != nil {
		q.log.Warn("an item may be delivered again", "item", item.ID(), "failure", failure, "err", err)
	}
}

// Reject returns an error for the handler of an item that will fail in each attempt, such as one with
// malformed data: the item becomes a dead letter at once, with cause as its reason.
func Reject(cause error) error { return &rejection{cause} }

type rejection struct{ error }

func (r *rejection) Unwrap() error { return r.error }

func isRejection(err error) bool {
	var r *rejection
	return errors.As(err, &r)
}
