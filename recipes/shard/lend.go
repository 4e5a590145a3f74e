package shard

import (
	"context"
	"errors"
	"time"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/grant"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// relockPause is the time between the end of a grant and the next attempt to lock the shard. The pause
// grows to maxRelockPause while the lock cannot be acquired.
const relockPause, maxRelockPause = 500 * time.Millisecond, time.Minute

// contend locks a shard, again whenever the lock is lost, until the context is done or the connection
// is closed. The cause of the context is a MovedError.
func (m *Member) contend(ctx context.Context, name string, reason Reason, report func(*Shard)) error {
	setup := m.group.setup
	mutex, err := m.group.mutex(name, m.id)
	if err != nil {
		// Only the Spec or the plan of another program contains such a name. The member keeps its other shards.
		setup.Log.Warn("cannot lock shard: its name is not valid", "shard", name, "err", err)
		<-ctx.Done()
		return nil
	}
	began := time.Now() // of the plan, or when the last hold has ended
	for pause := relockPause; ; {
		hold, err := mutex.Lock(ctx)
		switch {
		case err == nil:
			pause = relockPause
			s := &Shard{Hold: hold, name: name, reason: reason, requested: make(chan struct{})}
			report(s)
			reported := m.group.observe(s, began)
			m.lend(ctx, s, func() { report(nil) })
			<-reported
			reason, began = "", time.Now()
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, recipes.ErrConnClosed):
			return err
		case errors.Is(err, recipes.ErrSessionExpired), errors.Is(err, recipes.ErrDeleted), errors.Is(err, recipes.ErrLeaseExpired):
		default:
			// The reason concerns this shard, for instance the ACL of its lock. The member keeps its
			// other shards: if it left, the next owner of this one would fail as well.
			pause = min(2*pause, maxRelockPause)
			setup.Log.Warn("cannot lock shard: retrying", "shard", name, "err", err, "pause", pause)
		}
		if limit.Pause(ctx, pause) != nil {
			return nil
		}
	}
}

// lend lets the user work with a shard. It calls over when the user must not work any more, and returns when
// the shard is released and the user's function has returned.
func (m *Member) lend(ctx context.Context, s *Shard, over func()) {
	interrupt := func(error) {}
	var finished chan struct{} // nil without a function
	if m.run != nil {
		var work context.Context
		work, interrupt = grant.Work(s.Context(), m.caller)
		finished = make(chan struct{})
		go func() {
			defer close(finished)
			if err := m.run(work, s); err != nil && work.Err() == nil {
				m.stop(err)
			}
			<-work.Done() // until then the shard remains, idle
		}()
	}
	select {
	case <-s.Done():
	case <-ctx.Done():
		errors.As(context.Cause(ctx), &s.move)
		close(s.requested)
		interrupt(s.move)
		s.awaitRelease(finished, m.group.settings.grace)
	}
	over() // first: the release of a lost shard takes as long as the servers do not answer
	err := s.Release()
	for errors.Is(err, limit.ErrConfirm) {
		err = s.Release()
	}
	if err != nil {
		m.group.setup.Log.Warn("could not release shard", "shard", s.name, "err", err)
	}
	if interrupt(s.Err()); finished != nil {
		<-finished
	}
}

// awaitRelease waits until the user has released the shard, but not longer than the grace period, or
// at all if the user has not received it.
func (s *Shard) awaitRelease(finished <-chan struct{}, grace time.Duration) {
	if finished == nil && !s.delivered.Load() {
		return
	}
	select {
	case <-s.Done():
	case <-finished:
	case <-time.After(grace):
		s.revoked.Store(s.Hold.Err() == nil)
	}
}
