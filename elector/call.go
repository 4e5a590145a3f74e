package elector

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// slowHandler is how long a handler may run after its context is done before a message is logged. The message is
// not an error, because a handler may use the whole Grace.
const slowHandler = time.Second

// errExited is the error of a handler that has called runtime.Goexit.
var errExited = errors.New("handler exited its goroutine without returning")

// runAsync calls f on a new goroutine. The returned channel receives the result of f and is then closed. The
// caller does not have to receive from it.
func runAsync(f func() error) <-chan error {
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

// awaitResult waits for the result of a handler, which done receives. If the handler does not return within
// Grace after ctx is done, the error wraps ErrHung.
func awaitResult[T any](ctx context.Context, l *loop, handler string, done <-chan T) (result T, err error) {
	for ctx.Err() == nil {
		select {
		case result = <-done:
			return result, nil
		case <-ctx.Done():
		case <-l.pings:
		}
	}
	start := time.Now()
	log := l.log.With("handler", handler, "cause", context.Cause(ctx))
	slow, limit := time.NewTimer(slowHandler), time.NewTimer(l.grace)
	defer slow.Stop()
	defer limit.Stop()
	for {
		select {
		case result = <-done:
			return result, nil
		case <-slow.C:
			log.Info("handler still running after its context was done", "for", time.Since(start), "grace", l.grace)
		case <-limit.C:
			log.Error("handler abandoned: it is still running and may act as leader", "after", time.Since(start))
			return result, fmt.Errorf("%w: %s is still running %v after its context was done (%w)", ErrHung, handler, l.grace, context.Cause(ctx))
		case <-l.pings:
		}
	}
}

// callHandler calls f and waits for its result. abandoned is true if f has not returned in time, and err then
// wraps ErrHung. Otherwise err is the result of f.
func (l *loop) callHandler(ctx context.Context, handler string, f func() error) (abandoned bool, err error) {
	result, err := awaitResult(ctx, l, handler, runAsync(f))
	if err != nil {
		return true, err
	}
	return false, result
}
