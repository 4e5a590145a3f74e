package lock

import (
	"context"
	"errors"
	"path"
	"slices"

	"github.com/go-leaderelection/leaderelection/internal/setup"
)

// Waiter is a place in line for a [Mutex] that can be asked for its position. Its
// methods may be called from any goroutine.
type Waiter struct {
	q     *queue
	ctx   context.Context
	place *place      // nil where refused is set
	keep  func() bool // has the context's end not concern the place any more

	refused error
}

// Join takes a place in line without waiting. The place is given up when the
// context ends before Wait has returned the grant; one of the two must happen.
func (m *Mutex) Join(ctx context.Context) *Waiter {
	w := &Waiter{q: &m.queue, ctx: ctx, refused: refuse(ctx, m.at, true)}
	if w.refused == nil {
		w.refused = context.Cause(ctx)
	}
	if w.refused == nil {
		c := m.contest(false)
		c.asks = true
		w.place = c.start()
		w.keep = context.AfterFunc(ctx, func() { w.place.stop(errGivenUp) })
	}
	return w
}

// Wait waits for the grant as [Mutex.Lock] does, with the context of Join and the
// same errors. Only one call returns the grant.
func (w *Waiter) Wait() (*Hold, error) {
	h, err := w.wait()
	return h, setup.Fail("lock", w.q.at.Path, err)
}

func (w *Waiter) wait() (*Hold, error) {
	if w.refused != nil {
		return nil, w.refused
	}
	select {
	case h := <-w.place.granted:
		if !w.keep() {
			return nil, context.Cause(w.ctx)
		}
		return h, nil
	case <-w.place.left:
		w.keep()
		return nil, w.why()
	case <-w.ctx.Done():
		return nil, context.Cause(w.ctx)
	}
}

// Position tells how many contenders stand ahead: 0 for the one whose turn it is.
// It costs a request and no watch, and waits for ZooKeeper. The answer is that of the
// server at hand, which may be a moment behind. The error is the context's cause, or
// why there is no place in line any more.
func (w *Waiter) Position(ctx context.Context) (int, error) {
	ahead, err := w.position(ctx)
	return ahead, setup.Fail("position", w.q.at.Path, err)
}

func (w *Waiter) position(ctx context.Context) (int, error) {
	if w.refused != nil {
		return 0, w.refused
	}
	select {
	case <-w.place.entered:
	case <-w.place.left:
		return 0, w.why()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	names, err := w.q.names(ctx)
	if err != nil {
		return 0, err
	}
	if ahead := slices.Index(names, path.Base(w.place.own())); ahead >= 0 {
		return ahead, nil
	}
	select {
	case <-w.place.left:
		return 0, w.why()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// why is, once the place has been left, why.
func (w *Waiter) why() error {
	if errors.Is(w.place.err, errGivenUp) {
		return context.Cause(w.ctx)
	}
	return w.place.err
}
