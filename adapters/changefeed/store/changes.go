package store

import (
	"context"
	"errors"
	"sync"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// errWatchReturned is the error of a feed whose watch function has returned nil before its context was done.
var errWatchReturned = errors.New("changefeed: the watch has ended without an error")

// maxChanges is the number of unread changes that are kept for a reader.
const maxChanges = 1000

// Changes returns a feed of the changes that watch reports. It calls watch on a goroutine. watch must call report with
// nil when it is established; Changes then returns. If watch fails before that, Changes returns its error; later errors
// are returned by Next, after the changes that were reported before. If the reader is more than 1000 changes behind,
// Next returns those that were kept and then [changefeed.ErrMissed].
//
// watch blocks until its context is done or it fails, and should then return immediately, like a
// [WatchFunc]. It must not return nil before its context is done.
func (s *Feeds) Changes(ctx context.Context, watch func(ctx context.Context, report func(change any)) error) (changefeed.Changes, error) {
	both, end, err := s.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	c := &changes{ready: make(chan struct{}, 1), done: make(chan struct{}), finished: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(s.ctx)
	established := make(chan struct{})
	establish := sync.OnceFunc(func() { close(established) })
	run := func() {
		defer close(c.finished)
		c.watchReturned(watch(c.ctx, func(change any) {
			if change == nil {
				establish()
			} else {
				c.add(change)
			}
		}))
	}
	if err := s.Go(run); err != nil {
		c.cancel()
		return nil, err
	}
	select {
	case <-established:
	case <-c.done:
	case <-both.Done():
	}
	select {
	case <-established: // From now on, Next returns the errors of watch.
		return c, nil
	default:
	}
	select {
	case <-c.done:
		err = c.err
	default:
		err = ctx.Err()
	}
	c.cancel()
	if s.Closed() {
		err = changefeed.ErrClosed
	}
	return nil, err
}

// changes implements [changefeed.Changes].
type changes struct {
	ctx      context.Context // ctx is done when the feed or the store is closed.
	cancel   context.CancelFunc
	ready    chan struct{} // ready contains a token if there may be an unread change.
	finished chan struct{} // finished is closed when watch has returned.

	mu     sync.Mutex
	unread []any
	done   chan struct{} // done is closed when err is set.
	err    error
}

// add appends a change for the reader.
func (c *changes) add(change any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return
	case len(c.unread) == maxChanges:
		c.fail(changefeed.ErrMissed)
		return
	}
	c.unread = append(c.unread, change)
	select {
	case c.ready <- struct{}{}:
	default:
	}
}

// watchReturned sets the error of Next after the watch function has returned err.
func (c *changes) watchReturned(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ctx.Err() != nil:
		err = changefeed.ErrClosed
	case err == nil:
		err = errWatchReturned
	}
	c.fail(err)
}

// fail sets the error of Next. The caller must hold mu.
func (c *changes) fail(err error) {
	if c.err == nil {
		c.err = err
		close(c.done)
		c.cancel()
	}
}

// Next implements [changefeed.Changes].
func (c *changes) Next(ctx context.Context) (any, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if change, ok, err := c.removeFirst(); ok || err != nil {
			return change, err
		}
		select {
		case <-c.ready:
		case <-c.ctx.Done():
		case <-ctx.Done():
		}
	}
}

// removeFirst removes and returns the first unread change. ok is false if all changes were read; err is then the error
// of Next, if it is set.
func (c *changes) removeFirst() (change any, ok bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err == nil && c.ctx.Err() != nil, errors.Is(c.err, changefeed.ErrClosed):
		return nil, false, changefeed.ErrClosed
	case len(c.unread) > 0:
		change, c.unread = c.unread[0], c.unread[1:]
		return change, true, nil
	}
	return nil, false, c.err
}

// Close implements [changefeed.Changes].
func (c *changes) Close() error {
	c.mu.Lock()
	c.fail(changefeed.ErrClosed)
	c.err = changefeed.ErrClosed
	c.mu.Unlock()
	waitToClose(c.finished)
	return nil
}
