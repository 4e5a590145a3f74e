package elector

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// reportAfter is how long a handler may run after the end of its context before the log
// says so. It is nothing bad yet: the grace is there to be used.
const reportAfter = time.Second

// errExited is the error of a handler that has ended its goroutine by runtime.Goexit.
var errExited = errors.New("handler ended its goroutine without returning")

// start calls f on a goroutine of its own, and returns the channel of its result, which
// nobody need read, and which is closed after it.
func start(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() {
		err := errExited
		defer func() {
			done <- err
			close(done)
		}()
		err = f()
	}()
	return done
}

// await returns the result of a handler. When it does not come within the grace after
// the end of ctx the error is ErrHung's.
func await[T any](ctx context.Context, r *run, what string, done <-chan T) (result T, err error) {
	for ctx.Err() == nil {
		select {
		case result = <-done:
			return result, nil
		case <-ctx.Done():
		case <-r.turns:
		}
	}
	since := time.Now()
	log := r.log.With("handler", what, "cause", context.Cause(ctx))
	report, limit := time.NewTimer(reportAfter), time.NewTimer(r.grace)
	defer report.Stop()
	defer limit.Stop()
	for {
		select {
		case result = <-done:
			return result, nil
		case <-report.C:
			log.Info("handler still running after its context was done", "for", time.Since(since), "grace", r.grace)
		case <-limit.C:
			log.Error("handler abandoned: it is still running and may act as leader", "after", time.Since(since))
			return result, fmt.Errorf("%w: %s is still running %v after its context was done (%w)", ErrHung, what, r.grace, context.Cause(ctx))
		case <-r.turns:
		}
	}
}

// call calls a handler and waits for it. hung says that the error is not the handler's.
func (r *run) call(ctx context.Context, what string, f func() error) (hung bool, err error) {
	result, err := await(ctx, r, what, start(f))
	if err != nil {
		return true, err
	}
	return false, result
}
