package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/grant"
)

// MultiHold is a [Multi] that was granted. It is lost with the first of its locks;
// the others are held until it is released. It is a value like [Hold], and must be
// released, also when it is lost.
type MultiHold struct {
	holds []*Hold // by path
	grant *grant.Grant
	end   context.CancelCauseFunc
	stops []func() bool
}

func newMultiHold(holds []*Hold) *MultiHold {
	m := &MultiHold{holds: holds}
	m.grant, m.end = grant.New(0, m.earliest)
	for _, h := range holds {
		m.stops = append(m.stops, context.AfterFunc(h.Context(), func() { m.end(h.Err()) }))
	}
	return m
}

// earliest is the first of the deadlines.
func (m *MultiHold) earliest() (first time.Time) {
	for _, h := range m.holds {
		if d := h.Deadline(); first.IsZero() || d.Before(first) {
			first = d
		}
	}
	return first
}

// Token is the fencing token of the lock at path; 0 if there is none among these.
func (m *MultiHold) Token(path string) int64 {
	for _, h := range m.holds {
		if h.dir == path {
			return h.Token()
		}
	}
	return 0
}

// Done is closed, once, as soon as one of the locks is released, lost, or can no
// longer be proven to be held.
func (m *MultiHold) Done() <-chan struct{} { return m.grant.Context().Done() }

// Err is nil while all locks are held, and afterwards what has ended the first of
// them, as by [Hold.Err].
func (m *MultiHold) Err() error {
	for _, h := range m.holds {
		if err := h.Err(); err != nil {
			m.end(err)
			break
		}
	}
	return m.grant.Err()
}

// Deadline is until when all locks are proven to be held at this moment.
func (m *MultiHold) Deadline() time.Time { return m.grant.Deadline() }

// Context is done when not all locks are held any more; its cause is what Err
// returns. It knows of the holds, as that of [Hold.Context] does.
func (m *MultiHold) Context() context.Context { return holding{m.grant.Context(), m.holds} }

// Multi carries out ops as one ZooKeeper transaction that commits only while all
// locks are held: see [Hold.Multi].
func (m *MultiHold) Multi(ops ...any) ([]zk.MultiResponse, error) {
	if m.Err() != nil {
		return nil, ErrNotHeld
	}
	var own []string
	for _, h := range m.holds {
		own = append(own, h.own())
	}
	responses, err := m.grant.MultiAll(m.holds[0].conn, own, ErrNotHeld, ops)
	if err != nil && !errors.Is(err, ErrNotHeld) {
		err = fmt.Errorf("transaction as holder of %v: %w", own, err)
	}
	return responses, err
}

// Release gives all locks up, the one with the last path first, and returns like
// [Hold.Release] when that is confirmed for all.
func (m *MultiHold) Release(ctx context.Context) error {
	for _, stop := range m.stops {
		stop()
	}
	if m.Err() == nil {
		m.end(ErrReleased)
	}
	return release(ctx, m.holds)
}
