package cursor

import (
	"context"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// Cursor is a driver's. One goroutine uses it.
type Cursor[T any] interface {
	// Next waits for what comes next, or until the context is done that the cursor was
	// opened with, or longer if the driver does.
	Next() (T, error)
	// Close may wait for the server.
	Close()
}

// Open opens a cursor that lasts as long as ctx.
type Open[T any] func(ctx context.Context) (Cursor[T], error)

// tail is the goroutine that opens a cursor and asks it.
type tail[T any] struct {
	life   *Life
	items  chan T
	opened chan struct{}
	ended  chan struct{} // closed with err, before the cursor is closed
	err    error
}

// follow starts a tail, which ends with parent.
func follow[T any](parent *Life, open Open[T]) *tail[T] {
	t := &tail[T]{
		life: NewLife(parent.ctx), items: make(chan T),
		opened: make(chan struct{}), ended: make(chan struct{}),
	}
	run := func() {
		c, err := open(t.life.ctx)
		if err == nil {
			defer c.Close() // after the error was told: it may take a while
			close(t.opened)
			err = t.pass(c)
		}
		t.err = err
		close(t.ended)
	}
	// The parent waits for it, and so does the end of the tail.
	if err := parent.Go(func() {
		done := make(chan struct{})
		if t.life.Go(func() { defer close(done); run() }) == nil {
			<-done
			return
		}
		t.err = changefeed.ErrClosed
		close(t.ended)
	}); err != nil {
		t.err = err
		close(t.ended)
	}
	return t
}

func (t *tail[T]) pass(c Cursor[T]) error {
	for {
		v, err := c.Next()
		if err != nil {
			return err
		}
		select {
		case t.items <- v:
		case <-t.life.ctx.Done():
			return changefeed.ErrClosed
		}
	}
}

// Watch opens a cursor and returns when it is open.
func Watch[T any](ctx context.Context, l *Life, open Open[T]) (changefeed.Changes, error) {
	both, end, err := l.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	t := follow(l, open)
	select {
	case <-t.opened:
		return &changes[T]{t}, nil
	case <-t.ended:
		err = t.err
	case <-both.Done():
		err = ctx.Err()
	}
	t.life.end() // the store waits for it
	if l.ctx.Err() != nil {
		err = changefeed.ErrClosed
	}
	return nil, err
}

type changes[T any] struct{ tail *tail[T] }

// Next implements [changefeed.Changes].
func (c *changes[T]) Next(ctx context.Context) (any, error) {
	closed := c.tail.life.ctx
	if closed.Err() != nil {
		return nil, changefeed.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case v := <-c.tail.items:
		return v, nil
	case <-closed.Done():
		return nil, changefeed.ErrClosed
	case <-c.tail.ended:
		if closed.Err() != nil {
			return nil, changefeed.ErrClosed
		}
		return nil, c.tail.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Close implements [changefeed.Changes].
func (c *changes[T]) Close() error {
	c.tail.life.Close()
	return nil
}
