package main

// --timeout and --try: when run gives up before its first leadership.

import (
	"fmt"
	"sync"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/elector"
)

// attempt is the part of a run before its first leadership.
type attempt struct {
	cancel func() // ends the run

	mu      sync.Mutex
	elected bool
	failure error // why the run has given up; nil if it has not
}

// admit reports whether a leadership may begin: the run has not given up. It does not give up
// after that.
func (a *attempt) admit() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.elected = a.elected || a.failure == nil
	return a.elected
}

// giveUp ends the run with an error, unless a leadership has begun or it has given up before.
func (a *attempt) giveUp(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.elected && a.failure == nil {
		a.failure = err
		a.cancel()
	}
}

// gaveUp returns the error of giveUp, nil if the run has not given up.
func (a *attempt) gaveUp() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failure
}

func notElected(format string, args ...any) error {
	return &cmdline.Error{Code: exitNobody, Err: fmt.Errorf("not elected: "+format, args...)}
}

// late gives up after --timeout.
func (r *runner) late(b backend) {
	err := notElected("the timeout of %v has elapsed", r.timeout)
	if cause := b.checkConnected(); cause != nil {
		err = notElected("the timeout of %v has elapsed: %w", r.timeout, cause)
	}
	r.attempt.giveUp(err)
}

// tried gives up, for --try, if the candidate has to wait or its candidacy has failed.
func (r *runner) tried(report elector.Report) {
	switch s := report.Candidate; {
	case report.State == elector.StateError:
		r.attempt.giveUp(&cmdline.Error{Code: exitCode(report.Err), Err: report.Err})
	case s.Role == leaderelection.Follower && s.NowFollowing != "":
		r.attempt.giveUp(notElected("another candidate is ahead: %s", s.NowFollowing))
	}
}
