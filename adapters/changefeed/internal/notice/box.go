package notice

import (
	"context"
	"errors"
	"sync"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// Box carries what one goroutine puts to another, and never keeps the former waiting. Its
// methods may be called from any goroutine.
type Box[T any] struct {
	limit int
	late  error // nil for a box of the newest

	mu    sync.Mutex
	items []T
	err   error
	ready chan struct{} // holds a token while there is something to take
	ended chan struct{} // closed with err
}

// Newest returns a box that keeps what was put last, and forgets it at the end.
func Newest[T any]() *Box[T] { return newBox[T](1, nil) }

// Queue returns a box that keeps everything, and ends with the error late where more than
// limit would wait. What was put before an end can still be taken, unless the end is
// [changefeed.ErrClosed].
func Queue[T any](limit int, late error) *Box[T] { return newBox[T](limit, late) }

func newBox[T any](limit int, late error) *Box[T] {
	return &Box[T]{limit: limit, late: late, ready: make(chan struct{}, 1), ended: make(chan struct{})}
}

// Put adds v, unless the box has ended.
func (b *Box[T]) Put(v T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.err != nil:
		return
	case b.late == nil:
		b.items = append(b.items[:0], v)
	case len(b.items) == b.limit:
		b.end(b.late)
		return
	default:
		b.items = append(b.items, v)
	}
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// End ends the box with err. Only [changefeed.ErrClosed] replaces another end.
func (b *Box[T]) End(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.end(err)
}

func (b *Box[T]) end(err error) {
	switch {
	case b.err == nil:
		b.err = err
		close(b.ended)
	case errors.Is(err, changefeed.ErrClosed):
		b.err = err
	}
}

// Ended is closed at the end.
func (b *Box[T]) Ended() <-chan struct{} { return b.ended }

// Next takes what was put first, or waits for it until ctx is done.
func (b *Box[T]) Next(ctx context.Context) (T, error) {
	for {
		v, ok, err := b.take(ctx)
		if ok || err != nil {
			return v, err
		}
		select {
		case <-b.ready:
		case <-b.ended:
		case <-ctx.Done():
		}
	}
}

func (b *Box[T]) take(ctx context.Context) (v T, ok bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil && (b.late == nil || len(b.items) == 0 || errors.Is(b.err, changefeed.ErrClosed)) {
		return v, false, b.err
	}
	if err := ctx.Err(); err != nil {
		return v, false, err
	}
	if len(b.items) == 0 {
		return v, false, nil
	}
	v, b.items = b.items[0], b.items[1:]
	return v, true, nil
}

// Err is the error that the box has ended with, nil before.
func (b *Box[T]) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}
