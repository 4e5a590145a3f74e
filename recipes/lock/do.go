package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// DoOption is an option of the methods Do and RDo: [WithoutWaiting] or [WithWaitLimit].
type DoOption interface{ applyDo(*doSettings) error }

// doSettings are the options of one call of Do.
type doSettings struct {
	noWait bool          // whether WithoutWaiting is given
	limit  time.Duration // the longest wait for the lock; 0 means no limit
}

type doOption func(*doSettings) error

func (o doOption) applyDo(s *doSettings) error { return o(s) }

// WithoutWaiting makes Do return [ErrHeld] if it would have to wait for another client, as TryLock does, or
// [ErrEarly] if it would have to wait for the end of a [Period].
func WithoutWaiting() DoOption {
	return doOption(func(s *doSettings) error { s.noWait = true; return nil })
}

// WithWaitLimit makes Do return [context.DeadlineExceeded] if the lock is not granted within d. The limit does
// not apply to the function.
func WithWaitLimit(d time.Duration) DoOption {
	return doOption(func(s *doSettings) error {
		if d <= 0 {
			return fmt.Errorf("%w: lock.WithWaitLimit(%v): must be positive", recipes.ErrInvalid, d)
		}
		s.limit = d
		return nil
	})
}

// held is a Hold, a WriteHold or a MultiHold.
type held interface {
	Context() context.Context
	Err() error
	Release() error
}

// doWhileHeld acquires a hold by lock, or by try if opts contain WithoutWaiting. It calls f with the hold, and
// releases the hold.
func doWhileHeld[H held](ctx context.Context, s *recipe.Setup, opts []DoOption, lock, try func(context.Context) (H, error), f func(context.Context, H) error) error {
	var o doSettings
	if err := recipe.EachOption(opts, func(opt DoOption) error { return opt.applyDo(&o) }); err != nil {
		return s.Fail("lock", s.Path, err)
	}
	if o.noWait {
		lock = try
	}
	h, err := lockWithin(ctx, o.limit, lock)
	if err != nil {
		return err
	}
	return runHolding(ctx, s, h, f)
}

// lockWithin calls lock with a context that ends after limit. 0 means no limit.
func lockWithin[H held](ctx context.Context, limit time.Duration, lock func(context.Context) (H, error)) (H, error) {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	return lock(ctx)
}

// runHolding calls f with a context that ends with the hold, and releases the hold, also if f panics.
func runHolding[H held](ctx context.Context, s *recipe.Setup, h H, f func(context.Context, H) error) error {
	defer func() {
		if err := h.Release(); err != nil {
			s.Log.Warn("the release of a lock is not confirmed yet", "err", err)
		}
	}()
	work, end := connection.Work(h.Context(), ctx)
	defer end(nil)
	err := f(work, h)
	if lost := h.Err(); lost != nil && !errors.Is(lost, recipes.ErrReleased) {
		err = errors.Join(err, fmt.Errorf("run function as holder of %s: %w: %w", s.Path, recipes.ErrNotHeld, lost))
	}
	return err
}

// Do calls f once, while it holds the lock. It acquires the lock as [Mutex.Lock] does. If that fails, Do
// returns the error and does not call f. The context of f ends as soon as the lock is not held any more, with
// the reason as its cause: f must then end its work. The context of f also ends with ctx, and has the values of
// ctx. If f has returned or panics, Do releases the lock, which takes at most two seconds; a release that is
// not confirmed by then is logged, and continues in the background.
//
// Do returns the error of f, joined with [recipes.ErrNotHeld] and the reason if the lock was lost before f
// returned: another client may have held the lock in this time. f may release the hold itself.
func (m *Mutex) Do(ctx context.Context, f func(ctx context.Context, h *Hold) error, opts ...DoOption) error {
	return doWhileHeld(ctx, m.setup, opts, m.Lock, m.TryLock, f)
}

// Do calls f once, while it holds the lock for writing. Otherwise it is like [Mutex.Do].
func (m *RWMutex) Do(ctx context.Context, f func(ctx context.Context, h *WriteHold) error, opts ...DoOption) error {
	return doWhileHeld(ctx, m.setup, opts, m.Lock, m.TryLock, f)
}

// RDo calls f once, while it holds the lock for reading. Otherwise it is like [Mutex.Do].
func (m *RWMutex) RDo(ctx context.Context, f func(ctx context.Context, h *Hold) error, opts ...DoOption) error {
	return doWhileHeld(ctx, m.setup, opts, m.RLock, m.TryRLock, f)
}

// Do calls f once, while it holds n leases. Otherwise it is like [Mutex.Do].
func (s *Semaphore) Do(ctx context.Context, n int, f func(ctx context.Context, h *Hold) error, opts ...DoOption) error {
	return doWhileHeld(ctx, s.setup, opts,
		func(ctx context.Context) (*Hold, error) { return s.Acquire(ctx, n) },
		func(ctx context.Context) (*Hold, error) { return s.TryAcquire(ctx, n) }, f)
}

// Do calls f once, while it holds all locks. See [Mutex.Do].
func (m *MultiLock) Do(ctx context.Context, f func(ctx context.Context, h *MultiHold) error, opts ...DoOption) error {
	return doWhileHeld(ctx, m.parts[0].setup, opts, m.Lock, m.TryLock, f)
}
