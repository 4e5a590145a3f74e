package main

import (
	"errors"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/elector"
)

// Exit codes. The exit code of a program that elector runs is returned unchanged.
const (
	exitOK          = cmdline.OK
	exitFailed      = cmdline.Failed
	exitUsage       = cmdline.Usage
	exitUnclean     = cmdline.Unclean
	exitBackend     = cmdline.Permanent
	exitNobody      = cmdline.NoLeader
	exitStays       = cmdline.NotLeft
	exitOther       = cmdline.OtherLeader
	exitCannot      = cmdline.NotExecutable
	exitNotFound    = cmdline.NotFound
	exitInterrupted = cmdline.Interrupted
)

// exitCode is the exit code for what a command returned.
func exitCode(err error) int {
	var code *cmdline.Error
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return code.Code
	case errors.Is(err, elector.ErrEnd), errors.Is(err, elector.ErrHung):
		return exitUnclean
	case elector.IsTerminal(err):
		return exitBackend
	}
	return exitFailed
}
