package shard

import (
	"context"
	"errors"
	"time"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// relockPause is the time between the end of a hold and the next attempt to lock the shard. It doubles up to
// maxRelockPause while the lock cannot be acquired.
const relockPause, maxRelockPause = 500 * time.Millisecond, time.Minute

// contend locks a shard, and locks it again whenever the lock is lost, until ctx is done or the connection is
// closed. When ctx ends, its cause must be a MovedError.
func (m *Member) contend(ctx context.Context, name string, reason Reason, report func(*Shard)) error {
	setup := m.group.setup
	mutex, err := m.group.mutex(name, m.id)
	if err != nil {
		// Another program has written the name to the Spec or the plan. The member keeps its other shards.
		setup.Log.Warn("cannot lock shard: its name is not valid", "shard", name, "err", err)
		<-ctx.Done()
		return nil
	}
	began := time.Now() // the time at which the member received the plan, or at which the last hold ended
	for pause := relockPause; ; {
		hold, err := mutex.Lock(ctx)
		switch {
		case err == nil:
			pause = relockPause
			s := &Shard{Hold: hold, name: name, reason: reason, requested: make(chan struct{})}
			report(s)
			reported := m.group.observe(s, began)
			m.lendShard(ctx, s, func() { report(nil) })
			<-reported
			reason, began = "", time.Now()
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, recipes.ErrConnClosed):
			return err
		case errors.Is(err, recipes.ErrSessionExpired), errors.Is(err, recipes.ErrDeleted), errors.Is(err, recipes.ErrLeaseExpired):
		default:
			// The error concerns only this shard, for instance the ACL of its lock, so the member keeps its other
			// shards. If the member left, the next owner of this shard would fail as well.
			pause = min(2*pause, maxRelockPause)
			setup.Log.Warn("cannot lock shard: retrying", "shard", name, "err", err, "pause", pause)
		}
		if limit.Pause(ctx, pause) != nil {
			return nil
		}
	}
}

// lendShard lets the user work with a shard. It calls over as soon as the user must stop, and returns when the
// shard is released and the user's function has returned.
func (m *Member) lendShard(ctx context.Context, s *Shard, over func()) {
	interrupt := func(error) {}
	var finished chan struct{} // closed when the user's function has returned; nil if the user has called Join
	if m.run != nil {
		var work context.Context
		work, interrupt = connection.Work(s.Context(), m.caller)
		finished = make(chan struct{})
		go func() {
			defer close(finished)
			if err := m.run(work, s); err != nil && work.Err() == nil {
				m.stop(err)
			}
			<-work.Done() // the function has returned, but the member keeps the shard until the context ends
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
	over() // call over first: while the servers do not answer, the release of a lost shard does not return
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

// awaitRelease waits until the user has released the shard, or until the grace period ends. awaitRelease returns
// immediately if the user has not received the shard.
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
