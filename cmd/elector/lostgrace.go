package main

import (
	"cmp"
	"context"
	"time"

	"github.com/go-leaderelection/leaderelection"
)

// --lost-grace is the time between the expiry of a lease and KILL. It must end before another instance can
// become the leader.
const (
	// leaseMargin is the part of the session timeout between the expiry of a lease and the earliest
	// expiry of its session: an eighth.
	leaseMargin = 8
	// defaultLostGrace is the part of the session timeout that is the default of --lost-grace: a tenth.
	// It is less than an eighth to allow for delays.
	defaultLostGrace = 10
)

// checkLostGrace returns a usage error if --lost-grace is too long for a session timeout. origin describes
// the timeout.
func (r *runCommand) checkLostGrace(timeout time.Duration, origin string) error {
	if limit := timeout / leaseMargin; r.lostGrace > limit {
		return usage("--lost-grace %v: more than %v, an eighth of the %s session timeout of %v: another instance could begin before the rest of the program here is killed: %w; use a longer --session-timeout or a shorter grace, for example --lost-grace %v",
			r.lostGrace, limit, origin, timeout, leaderelection.ErrInvalidOption, limit)
	}
	return nil
}

// allowedLostGrace returns the grace to use. It is less than --lost-grace if the timeout of the current
// session is shorter than that of the first session.
func (r *runCommand) allowedLostGrace() time.Duration {
	timeout := r.sessionTimeout()
	return min(cmp.Or(r.lostGrace, timeout/defaultLostGrace), timeout/leaseMargin)
}

// newCandidate returns the NewCandidate of the Elector. It returns an error if --lost-grace is too long for
// the session timeout that the servers have granted.
func (r *runCommand) newCandidate(b backend) func(context.Context) (leaderelection.Candidate, error) {
	return func(ctx context.Context) (leaderelection.Candidate, error) {
		r.follower.endLeadership()
		if b.awaitSession != nil {
			if err := b.awaitSession(ctx); err != nil {
				return nil, err
			}
			if err := r.checkLostGrace(b.sessionTimeout(), "granted"); err != nil {
				return nil, err
			}
		}
		return b.newCandidate(ctx)
	}
}
