package elector

import (
	"context"
	"fmt"

	"github.com/go-leaderelection/leaderelection"
)

// Lead runs the candidacy of candidate and calls f while the candidate is the leader. The
// context of f is done when the leadership ends or when ctx is done; its cause is the
// reason.
//
// If f returns during the leadership, the candidate resigns and Lead returns the result of
// f. If f returns after the leadership was lost, its result is ignored, because the work
// may be incomplete: f is called again when the candidate becomes leader again, until the
// candidacy is over.
//
// Lead also returns when the candidacy is over, with the error that ended it, or with
// [ErrWithdrawn] after a call of Resign by other code. If the candidate is requested to
// resign (see Elector.NewCandidate), the context of f is cancelled, and Lead returns
// ErrWithdrawn after f has returned.
//
// If ctx is done, Lead resigns after f has returned, and returns nil, or the error of f if
// it is neither that of ctx nor its cause. If f does not return within ten seconds after its
// context is done, it is abandoned, and Lead returns an error that wraps [ErrHung] while the
// goroutine of f still runs.
//
// If the candidate was created with [leaderelection.WithRejoin], Lead waits for ZooKeeper
// when it does not answer, also if ZooKeeper starts later than this program.
//
// If the candidate was started before, by Lead or by ElectLeader, Lead returns an error that wraps
// [leaderelection.ErrAlreadyStarted], and does not change the candidate. Create a new candidate
// for each call.
//
// The caller must not call ElectLeader or receive from Status, and must not bind the
// candidate to ctx with [leaderelection.WithContext]: it would resign before f has
// returned. If the backend has not confirmed the resignation and no other error occurred,
// Lead returns an error that wraps [leaderelection.ErrUnconfirmed]. It waits for the
// backend for at most ten seconds.
func Lead(ctx context.Context, candidate leaderelection.Candidate, f func(ctx context.Context, l *leaderelection.Leadership) error) error {
	if f == nil {
		return fmt.Errorf("elector: %w: Lead: the function is nil", leaderelection.ErrInvalid)
	}
	e := &Elector{
		NewCandidate: func(context.Context) (leaderelection.Candidate, error) { return candidate, nil },
		Work:         f,
		isLead:       true,
	}
	return e.Run(ctx)
}
