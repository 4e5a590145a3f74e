package elector

import (
	"errors"

	"github.com/go-leaderelection/leaderelection"
)

// Errors returned by this package, to be tested with errors.Is. They are wrapped together
// with their cause.
var (
	// ErrNotRunning is returned if Run was not called yet or has returned.
	ErrNotRunning = errors.New("elector: not running")
	// ErrTerminal is returned by Run if the backend has failed permanently. [IsTerminal]
	// returns true for errors of a backend that wrap ErrTerminal.
	ErrTerminal = errors.New("elector: backend failed permanently")
	// ErrWithdrawn is returned if the candidate's Resign was called by other code than the
	// Elector, or, with [Lead], if the candidate was requested to resign.
	ErrWithdrawn = errors.New("elector: candidate was resigned")
	// ErrBegin is returned if Begin has failed or has not returned within BeginTimeout.
	ErrBegin = errors.New("elector: begin handler failed")
	// ErrWork is returned if Work has failed.
	ErrWork = errors.New("elector: work failed")
	// ErrEnd is returned if End has failed. Run returns it if all calls of End have failed:
	// the leadership was released, but this program may still be doing what only a leader
	// may do.
	ErrEnd = errors.New("elector: end handler failed")
	// ErrHung is returned if a handler has not returned within Grace after its context was
	// done. Its goroutine still runs, and only exiting the process is certain to stop it.
	ErrHung = errors.New("elector: handler did not return in time")
)

// IsTerminal reports whether retrying after err is pointless. It is the default of
// Elector.Terminal. It returns true for [ErrTerminal], for an election that was ended, and for
// errors that need another configuration or program: [leaderelection.ErrElectionOver],
// [leaderelection.ErrConnClosed], [leaderelection.ErrPermission],
// [leaderelection.ErrInvalid], and [leaderelection.ErrAlreadyStarted], which indicates that
// the candidate was used before.
func IsTerminal(err error) bool {
	for _, t := range terminal {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}

var terminal = []error{
	ErrTerminal,
	leaderelection.ErrElectionOver, leaderelection.ErrConnClosed, leaderelection.ErrPermission,
	leaderelection.ErrInvalid, leaderelection.ErrAlreadyStarted,
}
