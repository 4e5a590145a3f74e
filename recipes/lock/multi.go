package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/internal/zk/txn"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Part is a lock that a [MultiLock] can contain: a [Mutex], an [RWMutex] for reading or for
// writing, or leases of a [Semaphore].
type Part interface {
	part() lockPart
}

// lockPart contains the functions that acquire a Part: lock waits for the lock, and try does not.
type lockPart struct {
	setup     *recipe.Setup
	lock, try func(context.Context) (*Hold, error)
	err       error // why the part is invalid; nil if it is valid
}

func (m *Mutex) part() lockPart { return lockPart{m.setup, m.Lock, m.TryLock, nil} }

// Reading returns the lock for reading, as a part of a [MultiLock].
func (m *RWMutex) Reading() Part { return side{m, false} }

// Writing returns the lock for writing, as a part of a [MultiLock].
func (m *RWMutex) Writing() Part { return side{m, true} }

// side is the part that Reading or Writing of an RWMutex returns.
type side struct {
	*RWMutex
	writes bool
}

func (s side) part() lockPart {
	if !s.writes {
		return lockPart{s.setup, s.RLock, s.TryRLock, nil}
	}
	hold := func(h *WriteHold, err error) (*Hold, error) {
		if err != nil {
			return nil, err
		}
		return h.Hold, nil
	}
	return lockPart{
		s.setup,
		func(ctx context.Context) (*Hold, error) { return hold(s.Lock(ctx)) },
		func(ctx context.Context) (*Hold, error) { return hold(s.TryLock(ctx)) },
		nil,
	}
}

// Leases returns n leases of the semaphore, as a part of a [MultiLock].
func (s *Semaphore) Leases(n int) Part { return leasesPart{s, n} }

// leasesPart is the part that Leases of a Semaphore returns.
type leasesPart struct {
	semaphore *Semaphore
	n         int
}

func (l leasesPart) part() lockPart {
	return lockPart{
		l.semaphore.setup,
		func(ctx context.Context) (*Hold, error) { return l.semaphore.Acquire(ctx, l.n) },
		func(ctx context.Context) (*Hold, error) { return l.semaphore.TryAcquire(ctx, l.n) },
		checkCount("number of leases", l.n),
	}
}

// MultiLock acquires several locks together: all of them or none.
//
// It acquires them one after another, ordered by path. Therefore clients that acquire locks
// by MultiLock do not deadlock with each other. A client that acquires the same locks one by
// one in another order, with this library or another, can cause a deadlock.
type MultiLock struct{ parts []lockPart }

// NewMultiLock combines parts, which must use the same connection and different paths. It sends
// no request. It returns [recipes.ErrInvalid] if parts is empty or invalid.
func NewMultiLock(parts ...Part) (*MultiLock, error) {
	if len(parts) == 0 {
		return nil, fmt.Errorf("%w: lock.NewMultiLock: at least one lock is required", recipes.ErrInvalid)
	}
	m := &MultiLock{}
	for i, p := range parts {
		if p == nil {
			return nil, fmt.Errorf("%w: lock.NewMultiLock: lock %d is nil", recipes.ErrInvalid, i)
		}
		part := p.part()
		if part.err != nil {
			return nil, fmt.Errorf("lock.NewMultiLock: lock %d at %s: %w", i, part.setup.Path, part.err)
		}
		m.parts = append(m.parts, part)
	}
	slices.SortFunc(m.parts, func(a, b lockPart) int { return cmp.Compare(a.setup.Path, b.setup.Path) })
	for i, p := range m.parts {
		switch {
		case p.setup.Conn != m.parts[0].setup.Conn:
			return nil, fmt.Errorf("%w: lock.NewMultiLock: the locks use different connections", recipes.ErrInvalid)
		case i > 0 && p.setup.Path == m.parts[i-1].setup.Path:
			return nil, fmt.Errorf("%w: lock.NewMultiLock: two locks have the path %s", recipes.ErrInvalid, p.setup.Path)
		}
	}
	return m, nil
}

// Lock acquires all locks, and blocks until they are granted. If the context is done first,
// Lock returns its cause immediately, and locks that were already granted are released in
// the background. Other errors are those of the individual locks, including the loss of a
// lock that was already granted. In that case Lock returns when the other locks are
// released or the context is done.
func (m *MultiLock) Lock(ctx context.Context) (*MultiHold, error) {
	return m.acquireAll(ctx, func(p lockPart, ctx context.Context) (*Hold, error) { return p.lock(ctx) })
}

// TryLock is like Lock, but does not wait for other clients: it returns [ErrHeld] if one of
// the locks is not free.
func (m *MultiLock) TryLock(ctx context.Context) (*MultiHold, error) {
	return m.acquireAll(ctx, func(p lockPart, ctx context.Context) (*Hold, error) { return p.try(ctx) })
}

// acquireAll acquires all locks by calls of lock. If one call fails, acquireAll releases the locks that it has
// acquired.
func (m *MultiLock) acquireAll(ctx context.Context, lock func(lockPart, context.Context) (*Hold, error)) (*MultiHold, error) {
	taking, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	var holds []*Hold
	for _, p := range m.parts {
		h, err := lock(p, taking)
		if err == nil {
			holds = append(holds, h)
			stop := context.AfterFunc(h.Context(), func() { lost(h.Err()) })
			defer stop()
			for _, h := range holds { // an earlier lock may have been lost in the meantime
				err = cmp.Or(err, h.Err())
			}
		}
		if err != nil {
			released := connection.Start(func() (struct{}, error) { return struct{}{}, release(holds) })
			select {
			case <-released:
			case <-ctx.Done():
			}
			return nil, err
		}
	}
	return newMultiHold(holds), nil
}

// release releases all holds, in reverse order, and waits for the confirmations.
func release(holds []*Hold) (err error) {
	for _, h := range slices.Backward(holds) {
		h.leave(recipes.ErrReleased)
	}
	end := time.Now().Add(limit.Confirm)
	for _, h := range slices.Backward(holds) {
		err = cmp.Or(err, h.confirm(end))
	}
	return err
}

// MultiHold represents the possession of all locks of a [MultiLock]. A MultiHold is lost as soon as one of the
// locks is lost; the other locks are held until the MultiHold is released. Its methods may be called from any
// goroutine. A MultiHold must be released, even if it is lost.
type MultiHold struct {
	holds []*Hold // the holds, sorted by path
	grant *connection.Grant
	stops []func() bool
}

func newMultiHold(holds []*Hold) *MultiHold {
	m := &MultiHold{holds: holds}
	m.grant = connection.NewGrant(0, m.earliestDeadline)
	for _, h := range holds {
		m.stops = append(m.stops, context.AfterFunc(h.Context(), func() { m.grant.End(h.Err()) }))
		h.grant.EndOnClose(m.grant.End)
	}
	return m
}

// earliestDeadline returns the earliest deadline of the holds, at which the MultiHold ends.
func (m *MultiHold) earliestDeadline() (first time.Time) {
	for _, h := range m.holds {
		if d := h.Deadline(); first.IsZero() || d.Before(first) {
			first = d
		}
	}
	return first
}

// TokenOf returns the fencing token of the lock at path, or 0 if the MultiLock does not contain a
// lock at path.
func (m *MultiHold) TokenOf(path string) int64 {
	for _, h := range m.holds {
		if h.dir == path {
			return h.Token()
		}
	}
	return 0
}

// Done returns a channel that is closed when one of the locks is released or lost, or when
// its lease has expired.
func (m *MultiHold) Done() <-chan struct{} { return m.grant.Context().Done() }

// Err returns nil while all locks are held, and afterwards the reason why the first of them
// was lost. See [Hold.Err].
func (m *MultiHold) Err() error {
	for _, h := range m.holds {
		if err := h.Err(); err != nil {
			m.grant.End(err)
			break
		}
	}
	return m.grant.Err()
}

// Deadline returns the earliest time at which the lease of one of the locks expires unless
// it is renewed.
func (m *MultiHold) Deadline() time.Time { return m.grant.Deadline() }

// Context returns a context that is done when one of the locks is not held any more. Its cause is the error
// that Err returns. Like the context of a [Hold], it prevents Lock from waiting for these holds.
func (m *MultiHold) Context() context.Context { return holding{m.grant.Context(), m.holds} }

// Multi executes ops as one ZooKeeper transaction that commits only while all locks are
// held. See [Hold.Multi].
func (m *MultiHold) Multi(ops ...any) ([]zk.MultiResponse, error) {
	if m.Err() != nil {
		return nil, recipes.ErrNotHeld
	}
	var own []string
	for _, h := range m.holds {
		own = append(append(own, h.znodePath()), h.otherPaths...)
	}
	responses, err := txn.Guarded(m.holds[0].conn, m.grant, own, recipes.ErrNotHeld, ops)
	if err != nil && !errors.Is(err, recipes.ErrNotHeld) {
		err = fmt.Errorf("transaction as holder of %v: %w", own, err)
	}
	return responses, err
}

// Release releases all locks, in the reverse order of their paths. It returns nil when the
// release of all locks is confirmed, and otherwise the first error. See [Hold.Release].
func (m *MultiHold) Release() error {
	for _, stop := range m.stops {
		stop()
	}
	if m.Err() == nil {
		m.grant.End(recipes.ErrReleased)
	}
	return release(m.holds)
}
