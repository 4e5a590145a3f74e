package main

import (
	"errors"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/elector"
)

// exitCode returns the exit code for the result of a command. The exit code of a program that elector
// runs is in a cmdline.Error.
func exitCode(err error) int {
	var withCode *cmdline.Error
	switch {
	case err == nil:
		return cmdline.OK
	case errors.As(err, &withCode):
		return withCode.Code
	case errors.Is(err, elector.ErrEnd), errors.Is(err, elector.ErrHung):
		return cmdline.Unclean
	case elector.IsTerminal(err):
		return cmdline.Permanent
	}
	return cmdline.Failed
}
