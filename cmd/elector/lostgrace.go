package main

import (
	"cmp"
	"context"
	"time"

	"github.com/go-leaderelection/leaderelection"
)

// The divisors of the session timeout from which the limits of --lost-grace follow. The lost grace is the time
// between the expiry of a lease and KILL. It must end before another instance can become the leader.
const (
	flagLostGrace = "lost-grace"
	// leaseMargin is the divisor for the part of the session timeout that always remains between the expiry of a
	// lease and the earliest expiry of its session: a twelfth. On ZooKeeper, exactly this part remains for the first
	// lease of a leadership.
	leaseMargin = 12
	// defaultLostGrace is the divisor for the default of --lost-grace: a sixteenth of the session timeout. Even with
	// the additional eighth of this time that the parent process of the watchdog waits, the default is less than a
	// twelfth.
	defaultLostGrace = 16
	// stopGuard is the divisor for the part of the session timeout by which leaderships on the backends changefeed
	// and raftlog end before their lease: an eighth. This part is longer than --lost-grace, because of delays.
	stopGuard = 8
)

// maxLostGrace returns the maximum of --lost-grace for a session timeout.
func maxLostGrace(timeout time.Duration) time.Duration {
	return (timeout / leaseMargin).Truncate(time.Millisecond)
}

// checkLostGrace returns a usage error if --lost-grace is too long for a session timeout. origin is the word that
// describes the timeout in the error: requested or granted.
func (r *runCommand) checkLostGrace(timeout time.Duration, origin string) error {
	if limit := maxLostGrace(timeout); r.lostGrace > limit {
		return usage("--lost-grace %v: more than %v, a twelfth of the %s session timeout of %v: another instance could begin before the rest of the program here is killed: %w; use a longer --session-timeout or a shorter grace, for example --lost-grace %v",
			r.lostGrace, limit, origin, timeout, leaderelection.ErrInvalid, limit)
	}
	return nil
}

// allowedLostGrace returns the lost grace to use. It is less than --lost-grace if the current session has a shorter
// timeout than the first session.
func (r *runCommand) allowedLostGrace() time.Duration {
	timeout := r.sessionTimeout()
	return min(cmp.Or(r.lostGrace, timeout/defaultLostGrace), maxLostGrace(timeout))
}

// newCandidate returns the function NewCandidate of the Elector. That function returns an error if --lost-grace is
// too long for the session timeout that the servers have granted.
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
