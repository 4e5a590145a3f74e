package main

// What a command ends with, for scripts.

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/offline"
)

// Exit codes, of which 0, 1 and 2 mean the same as those of elector. exitHelp documents them.
const (
	exitFailed  = 1
	exitUsage   = 2
	exitMissing = 3
	exitExists  = 4
	exitUnknown = 5
	exitNothing = 6
	exitDamaged = 7
	exitNobody  = 8
	// exitIdentity is of a peer that must not take part with the data that it has: it was founded
	// separately, it has lost its directory or its log, or it uses a copy.
	exitIdentity = 9
)

const exitHelp = `Exit codes:
  0  done
  1  what was tried has failed, and was not done
  2  the command line or the config file cannot work; nothing was done
  3  config: a peer to be deleted is not there; nothing was done
  4  config: a peer to be added is there already; nothing was done
  5  it is not known whether it was or will be done: repeat it with the ID that is printed
  6  compact: the snapshot has that entry already; nothing was done
  7  files are damaged, or the peer has stopped by a fault
  8  status --once: nobody leads
  9  serve: this peer must not take part in the cluster with the directory that it has: it
     was founded separately, its directory or log was lost, is a copy or was put back to an
     earlier state, the cluster was recovered without it, or it has applied other entries
     than a majority; the message says what to do`

// codeError is an error with an exit code.
type codeError struct {
	code int
	err  error
}

func (e *codeError) Error() string { return e.err.Error() }
func (e *codeError) Unwrap() error { return e.err }

func failure(code int, format string, args ...any) error {
	return &codeError{code, fmt.Errorf(format, args...)}
}

func usage(format string, args ...any) error { return failure(exitUsage, format, args...) }

// exitCode is the exit code for what a command has returned.
func exitCode(err error) int {
	var code *codeError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return code.code
	case errors.Is(err, raftlog.ErrIdentity):
		return exitIdentity
	case errors.Is(err, raftlog.ErrUnknownOutcome):
		return exitUnknown
	case errors.Is(err, raftlog.ErrFault), errors.Is(err, offline.ErrCorrupt),
		errors.Is(err, offline.ErrSnapshot), errors.Is(err, offline.ErrMalformed):
		return exitDamaged
	case errors.Is(err, fs.ErrNotExist):
		return exitUsage
	}
	return exitFailed
}
