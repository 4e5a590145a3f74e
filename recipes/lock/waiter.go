package lock

import (
	"context"
	"errors"
	"path"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
)

// Waiter is a contender for a [Mutex] or a [Semaphore] whose position in the queue can be queried. Its
// methods may be called from any goroutine.
type Waiter struct {
	setup  *recipe.Setup
	names  func(context.Context) ([]string, error) // returns the names of the contenders, starting with the head of the queue
	ctx    context.Context
	entry  *entry      // nil if refused is set
	detach func() bool // makes the contender stay when ctx is done

	refused error
	began   time.Time // when the contender joined
}

// Join adds a contender to the queue of the mutex without waiting for the lock. The
// contender is removed if the context is done before Wait has returned a Hold. The caller
// must call Wait or end the context.
func (m *Mutex) Join(ctx context.Context) *Waiter {
	w := &Waiter{setup: m.setup, names: m.contenderNames, ctx: ctx, refused: checkReentry(ctx, m.setup, true)}
	return w.join(m.acquisition(false))
}

// join starts the contender, unless the call of Join was refused (w.refused) or its context is done.
func (w *Waiter) join(c acquisition) *Waiter {
	if w.refused == nil {
		w.refused = context.Cause(w.ctx)
	}
	if w.refused == nil {
		c.withPosition, w.began = true, time.Now()
		w.entry = c.start()
		w.detach = context.AfterFunc(w.ctx, func() { w.entry.stop(errGivenUp) })
	}
	return w
}

// Wait blocks until the lock is granted, like [Mutex.Lock] or [Semaphore.Acquire], with the context given to Join and
// the same errors. Wait also returns [recipes.ErrSessionExpired], because a Waiter has one position and does not join
// the queue again in the next session. Only one call of Wait returns the Hold.
func (w *Waiter) Wait() (*Hold, error) {
	h, err := w.wait()
	observe(w.setup, h, w.began)
	return h, w.setup.Fail("lock", w.setup.Path, err)
}

// wait is like Wait, but emits no events, and does not name the operation in its error.
func (w *Waiter) wait() (*Hold, error) {
	if w.refused != nil {
		return nil, w.refused
	}
	select {
	case h := <-w.entry.granted:
		if !w.detach() {
			return nil, context.Cause(w.ctx)
		}
		return h, nil
	case <-w.entry.left:
		w.detach()
		return nil, w.leaveReason()
	case <-w.ctx.Done():
		return nil, context.Cause(w.ctx)
	}
}

// Position returns the number of contenders ahead of this one in the queue: 0 for the contender at its head. It
// sends one request without a watch, and blocks until ZooKeeper answers. The server to which the client is
// connected answers, so the result may be slightly out of date. The error is the cause of ctx, or the reason why
// the contender is not in the queue any more. If another client has deleted its znode, Position blocks until the
// contender has noticed that, which takes a few milliseconds for each contender ahead.
func (w *Waiter) Position(ctx context.Context) (int, error) {
	ahead, err := w.position(ctx)
	return ahead, w.setup.Fail("find the position in", w.setup.Path, err)
}

func (w *Waiter) position(ctx context.Context) (int, error) {
	if w.refused != nil {
		return 0, w.refused
	}
	select {
	case <-w.entry.entered:
	case <-w.entry.left:
		return 0, w.leaveReason()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	names, err := w.names(ctx)
	if err != nil {
		return 0, err
	}
	if ahead := slices.Index(names, path.Base(w.entry.znodePath())); ahead >= 0 {
		return ahead, nil
	}
	select {
	case <-w.entry.left:
		return 0, w.leaveReason()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// leaveReason returns the reason why the contender left the queue. The contender must have left.
func (w *Waiter) leaveReason() error {
	if errors.Is(w.entry.err, errGivenUp) {
		return context.Cause(w.ctx)
	}
	return w.entry.err
}
