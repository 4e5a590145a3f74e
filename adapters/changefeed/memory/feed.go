package memory

import (
	"context"
	"errors"
	"sync"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// ErrMissed is returned by a feed of changes whose reader was too slow, so that changes
// were dropped. Read the current data and call [Store.Watch] again.
var ErrMissed = errors.New("memory: changes were missed; read the current data and watch again")

// queue is what a reader has not read yet. Its puts come with the table's mutex held.
type queue struct {
	store  *Store
	closed chan struct{}
	once   sync.Once
	ready  chan struct{} // holds a token while there is something to read

	mu     sync.Mutex
	events []any
	limit  int
	missed bool
}

func newQueue(s *Store, limit int) *queue {
	return &queue{store: s, closed: make(chan struct{}), ready: make(chan struct{}, 1), limit: limit}
}

// next waits for what was put first.
func (q *queue) next(ctx context.Context) (any, error) {
	for {
		select {
		case <-q.closed:
			return nil, changefeed.ErrClosed
		case <-q.store.closed:
			return nil, changefeed.ErrClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		default:
		}
		if e, ok, err := q.take(); ok || err != nil {
			return e, err
		}
		select {
		case <-q.ready:
		case <-q.closed:
		case <-q.store.closed:
		case <-ctx.Done():
		}
	}
}

func (q *queue) take() (e any, ok bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case len(q.events) > 0:
		e, q.events = q.events[0], q.events[1:]
		return e, true, nil
	case q.missed:
		return nil, false, ErrMissed
	}
	return nil, false, nil
}

func (q *queue) wake() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

func (q *queue) close() { q.once.Do(func() { close(q.closed) }) }

// feed tells of the newest state of a record.
type feed struct {
	*queue
	key string
}

func (f *feed) put(e changefeed.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events[:0], e)
	f.wake()
}

// Next implements [changefeed.Feed].
func (f *feed) Next(ctx context.Context) (changefeed.Event, error) {
	e, err := f.next(ctx)
	if err != nil {
		return changefeed.Event{}, err
	}
	return e.(changefeed.Event), nil
}

// Close implements [changefeed.Feed].
func (f *feed) Close() error {
	f.close()
	f.store.table.mu.Lock()
	defer f.store.table.mu.Unlock()
	delete(f.store.table.feeds, f)
	return nil
}

// changes tells of every change of other data.
type changes struct{ *queue }

func (c *changes) put(change Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.events) == c.limit {
		c.missed = true
	}
	if !c.missed {
		c.events = append(c.events, change)
	}
	c.wake()
}

// Next implements [changefeed.Changes]. It returns a [Change].
func (c *changes) Next(ctx context.Context) (any, error) { return c.next(ctx) }

// Close implements [changefeed.Changes].
func (c *changes) Close() error {
	c.close()
	c.store.table.mu.Lock()
	defer c.store.table.mu.Unlock()
	delete(c.store.table.changes, c)
	return nil
}
