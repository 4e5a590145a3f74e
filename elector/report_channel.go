package elector

// How others follow an Elector: each change of its state, and whether its loop turns.

import (
	"context"
	"fmt"

	"github.com/go-leaderelection/leaderelection/internal/latest"
)

// Reports returns a channel of state changes. It delivers the current Report immediately,
// and then a Report after each change of State or Err and after each status of the
// candidate. A status that arrives while a handler runs is reported after the handler has
// returned. Consecutive reports can be equal. Sending never blocks the Elector: a slow
// reader receives only the newest Report. The last Report contains the error that Run
// returned; then the channel is closed.
//
// Every call returns the same channel, which is meant for one reader. Reports may be called
// from any goroutine, before, during and after Run, and does not block. A Report may be out
// of date when it is received: to find out whether this program is the leader, call the Err
// method of Candidate.Leadership.
func (e *Elector) Reports() <-chan Report {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.reports == nil {
		e.reports = make(chan Report, 1)
		e.reports <- e.told.orInitial()
		if e.over {
			close(e.reports)
		}
	}
	return e.reports
}

// tell has the reader of Reports get what Current says. Only the goroutine of Run calls it.
func (e *Elector) tell() {
	report := e.Current() // asks the candidate, so not under the lock
	e.mu.Lock()
	defer e.mu.Unlock()
	e.told = report
	if e.reports == nil {
		return
	}
	latest.Send(e.reports, report)
}

// begin says that Run has been called; false if it was before.
func (e *Elector) begin() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.turns != nil {
		return false
	}
	e.turns, e.ended = make(chan struct{}), make(chan struct{})
	return true
}

// finish says that Run returns.
func (e *Elector) finish() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	close(e.ended)
	if e.reports != nil {
		close(e.reports)
	}
}

// Ping checks the liveness of the loop of Run, and blocks until the loop has answered.
// The loop answers immediately, even while it waits for a handler, for the backend or for
// the next retry. Ping returns an error that wraps the cause of ctx if ctx is done
// first, which indicates that this program is stuck, and [ErrNotRunning] if Run was not
// called yet or has returned. It may be called from any goroutine.
func (e *Elector) Ping(ctx context.Context) error {
	e.mu.Lock()
	turns, ended := e.turns, e.ended
	e.mu.Unlock()
	if turns == nil {
		return ErrNotRunning
	}
	select {
	case turns <- struct{}{}:
		return nil
	case <-ended:
		return ErrNotRunning
	case <-ctx.Done():
		return fmt.Errorf("elector: run loop did not respond: %w", context.Cause(ctx))
	}
}
