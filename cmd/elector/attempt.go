package main

import (
	"sync"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/elector"
)

// attempt is the part of a run before its first leadership. It can fail because of --timeout or --try.
type attempt struct {
	cancel func() // cancel ends the run after a failure

	mu      sync.Mutex
	elected bool
	err     error // the reason why the attempt has failed, or nil
}

// markSucceeded records that a leadership begins, so that the attempt cannot fail any more. It returns the error of
// the attempt if the attempt has already failed.
func (a *attempt) markSucceeded() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.elected = a.elected || a.err == nil
	return a.err
}

// fail ends the run with err, unless the attempt has already succeeded or failed.
func (a *attempt) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.elected && a.err == nil {
		a.err = err
		a.cancel()
	}
}

// failure returns the reason why the attempt has failed, or nil if it has not failed.
func (a *attempt) failure() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

// notElected returns an error with the exit code of a run that was not elected.
func notElected(format string, args ...any) error {
	return cmdline.Errorf(cmdline.NoLeader, "not elected: "+format, args...)
}

// giveUpAfterTimeout makes the attempt fail after --timeout.
func (r *runCommand) giveUpAfterTimeout(b backend) {
	err := notElected("the timeout of %v has elapsed", r.timeout)
	if cause := b.checkConnected(); cause != nil {
		err = notElected("the timeout of %v has elapsed: %w", r.timeout, cause)
	}
	r.attempt.fail(err)
}

// giveUpIfNotElected makes the attempt fail, for --try, if the candidate has to wait or its candidacy has
// failed.
func (r *runCommand) giveUpIfNotElected(report elector.Report) {
	switch s := report.Candidate; {
	case report.State == elector.StateError:
		r.attempt.fail(&cmdline.Error{Code: exitCode(report.Err), Err: report.Err})
	case s.Role == leaderelection.Follower && s.NowFollowing != "":
		r.attempt.fail(notElected("another candidate is ahead: %s", s.NowFollowing))
	}
}
