package main

// --lost-grace reaches beyond the end of a lease, and must not reach the moment at which
// another instance may begin.

import (
	"cmp"
	"context"
	"time"

	"github.com/go-leaderelection/leaderelection"
)

const (
	// A lease ends at least that part of the session timeout before its session can.
	spare = 8
	// What KILL gets of it by default; the rest is for what is slow.
	lostGracePart = 10
)

// allows refuses a --lost-grace that a session timeout does not allow. who names the
// timeout.
func (r *runner) allows(timeout time.Duration, who string) error {
	if most := timeout / spare; r.lostGrace > most {
		return usage("--lost-grace %v: more than %v, an eighth of the session timeout of %v %s: another instance could begin before the rest of the program here is killed: %w; use a longer --session-timeout or a shorter grace, for example --lost-grace %v",
			r.lostGrace, most, timeout, who, leaderelection.ErrInvalidOption, most)
	}
	return nil
}

// candidate returns the function that creates candidates for the Elector. It fails if the
// session timeout that the servers grant does not allow --lost-grace.
func (r *runner) candidate(b backend) func(context.Context) (leaderelection.Candidate, error) {
	return func(ctx context.Context) (leaderelection.Candidate, error) {
		r.follower.follow()
		if b.negotiate != nil {
			if err := b.negotiate(ctx); err != nil {
				return nil, err
			}
			if err := r.allows(b.session(), "that is granted"); err != nil {
				return nil, err
			}
		}
		return b.candidate(ctx)
	}
}

// boundedLostGrace is what is used: a later session may be shorter.
func (r *runner) boundedLostGrace() time.Duration {
	granted := r.granted()
	return min(cmp.Or(r.lostGrace, granted/lostGracePart), granted/spare)
}
