package elector

// How others follow an Elector: each change of its state, and whether its loop turns.

import (
	"context"
	"fmt"
)

// Reports is for following the state. The channel has the newest Report: the one of now
// at once, then one after each change of State or Err, and after each status that the
// loop has heard of the candidate; those that come while a handler runs are heard when it
// has returned. Two in a row may say the same. It never holds the Elector up: a reader that is late misses all but the
// newest. The last Report says what Run has returned; then the channel is closed, once.
//
// There is one channel, for one reader, which every call returns. Reports may be called
// from any goroutine, before, during and after Run, and does not block. A Report is of the
// past when it is read: whoever needs to know whether this program leads asks [Report]'s
// Candidate.Leadership for its Err.
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
	select {
	case <-e.reports:
	default:
	}
	e.reports <- report // there is room: it was emptied, and nobody else sends
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

// Responds asks the loop of Run for a sign of life, and blocks until that has come, which
// takes no time: the loop gives it also while it waits for a handler, for the backend or
// for the time of the next try. So an error says that this program is stuck, or that Run
// was not called or has returned ([ErrNotRunning]). When ctx ends first the error wraps
// its cause. It may be called from any goroutine.
func (e *Elector) Responds(ctx context.Context) error {
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
		return fmt.Errorf("elector: the loop does not answer: %w", context.Cause(ctx))
	}
}
