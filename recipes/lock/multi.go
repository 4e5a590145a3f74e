package lock

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/go-leaderelection/leaderelection/internal/setup"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Part is what a [Multi] can be made of: a [Mutex], or one side of an [RWMutex].
type Part interface {
	part() part
}

type part struct {
	at        *setup.Setup
	lock, try func(context.Context) (*Hold, error)
}

func (m *Mutex) part() part { return part{m.at, m.Lock, m.TryLock} }

// Reading is the lock for reading, as a part of a [Multi].
func (m *RWMutex) Reading() Part { return side{m, false} }

// Writing is the lock for writing, as a part of a [Multi].
func (m *RWMutex) Writing() Part { return side{m, true} }

type side struct {
	*RWMutex
	writes bool
}

func (s side) part() part {
	if !s.writes {
		return part{s.at, s.RLock, s.TryRLock}
	}
	hold := func(h *WriteHold, err error) (*Hold, error) {
		if err != nil {
			return nil, err
		}
		return h.Hold, nil
	}
	return part{
		s.at,
		func(ctx context.Context) (*Hold, error) { return hold(s.Lock(ctx)) },
		func(ctx context.Context) (*Hold, error) { return hold(s.TryLock(ctx)) },
	}
}

// Multi is several locks that are taken together: all of them or none.
//
// They are taken one after the other, in the order of their paths. So those who take
// locks by a Multi never wait for each other in a circle, however many locks they
// have in common. Who takes the same locks one by one in another order, with this
// library or another, can close one.
type Multi struct{ parts []part } // by path

// NewMulti makes one lock of parts, all on one connection and each at a path of its
// own. It sends no request. The error is [recipes.ErrInvalidOption].
func NewMulti(parts ...Part) (*Multi, error) {
	if len(parts) == 0 {
		return nil, fmt.Errorf("%w: no locks", recipes.ErrInvalidOption)
	}
	m := &Multi{}
	for i, p := range parts {
		if p == nil {
			return nil, fmt.Errorf("%w: lock %d is nil", recipes.ErrInvalidOption, i)
		}
		m.parts = append(m.parts, p.part())
	}
	slices.SortFunc(m.parts, func(a, b part) int { return cmp.Compare(a.at.Path, b.at.Path) })
	for i, p := range m.parts {
		switch {
		case p.at.Conn != m.parts[0].at.Conn:
			return nil, fmt.Errorf("%w: locks on several connections", recipes.ErrInvalidOption)
		case i > 0 && p.at.Path == m.parts[i-1].at.Path:
			return nil, fmt.Errorf("%w: %s twice", recipes.ErrInvalidOption, p.at.Path)
		}
	}
	return m, nil
}

// Lock waits until all locks are granted. When the context ends before, Lock returns
// its cause at once, and what was granted is released in the background. Other errors
// are those of the single locks, and what has ended a lock that was granted while
// another was waited for; then Lock returns when the rest is released, or the context
// ends.
func (m *Multi) Lock(ctx context.Context) (*MultiHold, error) {
	return m.take(ctx, func(p part, ctx context.Context) (*Hold, error) { return p.lock(ctx) })
}

// TryLock is Lock that does not wait for others: it returns [ErrHeld] where one of the
// locks is not free.
func (m *Multi) TryLock(ctx context.Context) (*MultiHold, error) {
	return m.take(ctx, func(p part, ctx context.Context) (*Hold, error) { return p.try(ctx) })
}

func (m *Multi) take(ctx context.Context, lock func(part, context.Context) (*Hold, error)) (*MultiHold, error) {
	taking, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	var holds []*Hold
	for _, p := range m.parts {
		h, err := lock(p, taking)
		if err == nil {
			holds = append(holds, h)
			stop := context.AfterFunc(h.Context(), func() { lost(h.Err()) })
			defer stop()
			for _, h := range holds { // one may have been lost just now
				err = cmp.Or(err, h.Err())
			}
		}
		if err != nil {
			_ = release(ctx, holds)
			return nil, err
		}
	}
	return newMultiHold(holds), nil
}

// release releases all of holds, the last one first, and waits for the confirmation.
func release(ctx context.Context, holds []*Hold) (err error) {
	for _, h := range slices.Backward(holds) {
		h.leave(ErrReleased)
	}
	for _, h := range slices.Backward(holds) {
		if e := h.Release(ctx); err == nil {
			err = e
		}
	}
	return err
}
