package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/txn"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// MultiHold represents the possession of all locks of a [MultiLock]. It is lost as soon as one
// of the locks is lost; the other locks are held until it is released. Its methods may be
// called from any goroutine. It must be released, even if it is lost.
type MultiHold struct {
	holds []*Hold // by path
	grant *connection.Grant
	end   context.CancelCauseFunc
	stops []func() bool
}

func newMultiHold(holds []*Hold) *MultiHold {
	m := &MultiHold{holds: holds}
	m.grant, m.end = connection.NewGrant(0, m.earliest)
	for _, h := range holds {
		m.stops = append(m.stops, context.AfterFunc(h.Context(), func() { m.end(h.Err()) }))
		h.grant.EndOnClose(m.end)
	}
	return m
}

// earliest returns the earliest of the deadlines.
func (m *MultiHold) earliest() (first time.Time) {
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
			m.end(err)
			break
		}
	}
	return m.grant.Err()
}

// Deadline returns the earliest time at which the lease of one of the locks expires unless
// it is renewed.
func (m *MultiHold) Deadline() time.Time { return m.grant.Deadline() }

// Context returns a context that is done when one of the locks is not held any more. Its
// cause is the error that Err returns. Like that of [Hold.Context], it prevents a Lock from
// waiting for these holds.
func (m *MultiHold) Context() context.Context { return holding{m.grant.Context(), m.holds} }

// Multi executes ops as one ZooKeeper transaction that commits only while all locks are
// held. See [Hold.Multi].
func (m *MultiHold) Multi(ops ...any) ([]zk.MultiResponse, error) {
	if m.Err() != nil {
		return nil, recipes.ErrNotHeld
	}
	var own []string
	for _, h := range m.holds {
		own = append(own, h.znodePath())
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
		m.end(recipes.ErrReleased)
	}
	return release(m.holds)
}
