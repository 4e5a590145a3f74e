package main

import (
	"errors"
	"fmt"

	"github.com/go-leaderelection/leaderelection/elector"
)

// Exit codes, documented in docs/elector.md. That of a program is returned as it is.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnclean     = 3 // what was begun may still run
	exitBackend     = 4 // the election cannot go on
	exitNobody      = 5 // status, resign: nobody leads
	exitStays       = 6 // resign: the candidate has not left
	exitCannot      = 126
	exitNotFound    = 127
	exitInterrupted = 130 // demo
)

// codeError is an error with an exit code. Without an error nothing is printed.
type codeError struct {
	code int
	err  error
}

func (e *codeError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *codeError) Unwrap() error { return e.err }

func usage(format string, args ...any) error {
	return &codeError{exitUsage, fmt.Errorf(format, args...)}
}

// exitCode is the exit code for what a command returned.
func exitCode(err error) int {
	var code *codeError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return code.code
	case errors.Is(err, elector.ErrEnd), errors.Is(err, elector.ErrHung):
		return exitUnclean
	case elector.IsTerminal(err):
		return exitBackend
	}
	return exitFailed
}
