package elector

import (
	"errors"

	"github.com/go-leaderelection/leaderelection"
)

// The errors of this package, for errors.Is. They are wrapped together with what
// has caused them.
var (
	// ErrAlreadyRun: Run was called before. An Elector runs once.
	ErrAlreadyRun = errors.New("elector: has run already")
	// ErrNotRunning: Run was not called yet, or has returned.
	ErrNotRunning = errors.New("elector: does not run")
	// ErrTerminal: the backend cannot go on, and Run has returned. A backend that
	// wraps it in its error has [IsTerminal] say so.
	ErrTerminal = errors.New("elector: the backend has ended")
	// ErrWithdrawn: somebody other than the Elector has called the candidate's Resign, or,
	// with [Lead], has asked for it.
	ErrWithdrawn = errors.New("elector: the candidate was withdrawn")
	// ErrBegin: Begin has failed, or was not done within BeginTimeout.
	ErrBegin = errors.New("elector: begin handler failed")
	// ErrWork: Work has failed.
	ErrWork = errors.New("elector: work failed")
	// ErrEnd: End has failed. Run returns it when all tries have; then this program
	// may still do what only a leader may. The leadership was given up.
	ErrEnd = errors.New("elector: end handler failed")
	// ErrHung: a handler has not returned within Grace after the end of its context,
	// and was abandoned: its goroutine still runs. Only the end of the process ends it
	// for certain.
	ErrHung = errors.New("elector: handler hangs")
)

// IsTerminal is what Run asks of a backend's error where Elector.Terminal is nil: is
// it of no use to try again? It is for [ErrTerminal], for the end of the election, and
// for what only another configuration or another program can mend:
// [leaderelection.ErrElectionOver], [leaderelection.ErrConnClosed],
// [leaderelection.ErrPermission], [leaderelection.ErrNilConn],
// [leaderelection.ErrInvalidPath], [leaderelection.ErrInvalidOption], and the errors of
// a candidate that takes part elsewhere or has done so before.
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
	leaderelection.ErrNilConn, leaderelection.ErrInvalidPath, leaderelection.ErrInvalidOption,
	leaderelection.ErrAlreadyStarted, leaderelection.ErrCandidacyOver,
}
