package elector

import (
	"context"
	"fmt"

	"github.com/go-leaderelection/leaderelection"
)

// Lead has candidate take part, and calls f while it leads. The context of f is done
// when the leadership is lost and when ctx is; its cause says why.
//
// What f returns while it leads is what Lead returns, after the candidate has resigned.
// What it returns after the leadership was lost does not count: f is called again when
// the candidate leads again, until the candidacy is over. So a job that f has done
// without being the leader any more is not taken for done.
//
// Lead returns when f has returned, when the candidacy is over, with the error that has
// ended it, [ErrWithdrawn] after a Resign by somebody else, or when one was asked for (see
// Elector.NewCandidate) and f has returned; and when ctx is done: with
// what f has returned if it was leading, else with the context's cause. An f that has not
// returned ten seconds after the end of its context is abandoned, with an error that
// wraps [ErrHung]; its goroutine still runs.
//
// A candidate with [leaderelection.WithRejoin] waits for a ZooKeeper that does not answer,
// also for one that starts after this program, and Lead waits with it.
//
// Nobody else starts or reads the candidate. It must not be bound to ctx
// ([leaderelection.WithContext]), or else it resigns before f has returned. When the backend
// has not confirmed the resignation within ten seconds, and there is no other error, Lead
// returns one that wraps [leaderelection.ErrUnconfirmed].
func Lead(ctx context.Context, candidate leaderelection.Candidate, f func(ctx context.Context, l *leaderelection.Leadership) error) error {
	if f == nil {
		return fmt.Errorf("elector: %w: nothing to run", leaderelection.ErrInvalidOption)
	}
	e := &Elector{
		NewCandidate: func(context.Context) (leaderelection.Candidate, error) { return candidate, nil },
		Work:         f,
		plain:        true,
	}
	return e.Run(ctx)
}
