package queue

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// Take claims an item, and blocks until one is available, also while ZooKeeper does not
// answer and across sessions. If the context is done first, Take returns its cause
// immediately, and a claim in progress is released in the background. Other errors:
// [ErrClosed], [ErrTooMany], [recipes.ErrConnClosed], [recipes.ErrPermission], and
// [recipes.ErrTooLarge], which names an item that is larger than the connection accepts.
// Such an item remains in the queue for other consumers, and this consumer does not claim
// it again while it is listed.
func (q *Queue) Take(ctx context.Context) (Item, error) {
	items, err := q.take(ctx, 1, false)
	if err != nil {
		return Item{}, err
	}
	return items[0], nil
}

// TryTake is like Take, but does not wait for items: it returns [ErrEmpty] if all due items
// are claimed. TryTake still waits for ZooKeeper.
func (q *Queue) TryTake(ctx context.Context) (Item, error) {
	items, err := q.take(ctx, 1, true)
	if err != nil {
		return Item{}, err
	}
	return items[0], nil
}

// TakeUpTo is like Take, but returns between one and n items, as many as are available.
func (q *Queue) TakeUpTo(ctx context.Context, n int) ([]Item, error) {
	if n < 1 {
		return nil, q.fail("take from", fmt.Errorf("%w: TakeUpTo(%d)", zkerror.ErrInvalidOption, n))
	}
	return q.take(ctx, n, false)
}

func (q *Queue) take(ctx context.Context, n int, now bool) ([]Item, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, q.fail("take from", err)
	}
	answers := make(chan answer, 1)
	w := &want{n: n, now: now, answers: answers}
	if err := q.ask(w); err != nil {
		return nil, q.fail("take from", err)
	}
	var a answer
	select {
	case a = <-answers:
	case <-ctx.Done():
		if q.withdraw(w) {
			return nil, q.fail("take from", context.Cause(ctx))
		}
		a = <-answers // it came at the same time
	case <-q.ctx.Done(): // the feed may be waiting for ZooKeeper
		if q.withdraw(w) {
			return nil, q.fail("take from", ErrClosed)
		}
		a = <-answers
	}
	for _, i := range a.items {
		i.d.read.Store(true)
	}
	return a.items, q.fail("take from", a.err)
}

// want is a wish for one to n items.
type want struct {
	n       int
	now     bool          // or for none, if there is none
	answers chan<- answer // which has room
	number  uint64        // of those that were asked
}

type answer struct {
	items []Item
	err   error
}

// ask adds a want, which is answered once unless it is withdrawn.
func (q *Queue) ask(w *want) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closing:
		return ErrClosed
	case q.over != nil:
		return q.over
	}
	if q.feed == nil {
		q.sub = q.subscribe()
		q.feed = newFeed(q)
		q.busy.Go(q.guard)
		q.busy.Go(q.feed.run)
	}
	q.asked++
	w.number = q.asked
	q.wants = append(q.wants, w)
	q.wake()
	return nil
}

// withdraw takes a want back; false says that its answer has come.
func (q *Queue) withdraw(w *want) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, x := range q.wants {
		if x == w {
			q.wants = append(q.wants[:i], q.wants[i+1:]...)
			return true
		}
	}
	return false
}

// wanted is how many items are wanted, and the number of the last want that does
// not wait for them, 0 if there is none.
func (q *Queue) wanted() (n int, now uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, w := range q.wants {
		n += w.n
		if w.now {
			now = w.number
		}
	}
	return n, now
}

// refuse answers all wants with an error.
func (q *Queue) refuse(err error) {
	q.answer(err, func(*want) bool { return true })
}

// refuseNow answers those that do not wait, up to a number.
func (q *Queue) refuseNow(number uint64) {
	q.answer(ErrEmpty, func(w *want) bool { return w.now && w.number <= number })
}

func (q *Queue) answer(err error, which func(*want) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wants = slices.DeleteFunc(q.wants, func(w *want) bool {
		if which(w) {
			w.answers <- answer{err: err}
			return true
		}
		return false
	})
}

// hand gives items to those who want them, and returns the rest.
func (q *Queue) hand(ds []*delivery) (rest []*delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(ds) > 0 && len(q.wants) > 0 && !q.closing {
		w := q.wants[0]
		q.wants = q.wants[1:]
		var items []Item
		for len(ds) > 0 && len(items) < w.n {
			items = append(items, Item{ds[0]})
			ds = ds[1:]
		}
		w.answers <- answer{items: items}
	}
	return ds
}
