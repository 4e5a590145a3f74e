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

// asker is a backend that knows what session timeout it asks for.
type asker interface {
	asks() time.Duration
}

// granter is a backend whose servers decide; session is their word, once it is ready.
type granter interface {
	ready(ctx context.Context) error
	session() time.Duration
}

// allows refuses a --lost-grace that a session timeout does not allow. who names the
// timeout.
func (r *runner) allows(timeout time.Duration, who string) error {
	if most := timeout / spare; r.lostGrace > most {
		return usage("--lost-grace %v: more than %v, an eighth of the session timeout of %v %s: another instance could begin before what is left here is killed; choose less, or a longer --session-timeout: %w",
			r.lostGrace, most, timeout, who, leaderelection.ErrInvalidOption)
	}
	return nil
}

// candidate makes candidates for the Elector, unless the session timeout that is granted
// does not allow what was asked for.
func (r *runner) candidate(b backend) func(context.Context) (leaderelection.Candidate, error) {
	return func(ctx context.Context) (leaderelection.Candidate, error) {
		if g, ok := b.(granter); ok {
			if err := g.ready(ctx); err != nil {
				return nil, err
			}
			if err := r.allows(g.session(), "that is granted"); err != nil {
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
