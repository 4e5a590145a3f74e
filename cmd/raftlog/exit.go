package main

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/offline"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// exitHelp documents the exit codes, which mean the same as in the command elector. The help text of a command
// contains the codes that the command can return (see exitCodes).
const exitHelp = `Exit codes:
  0  success
  1  any other error; the operation was not done
  2  wrong usage: flags, arguments or the configuration file; nothing was done
  4  files are damaged, or the peer has stopped because of a fault
  5  status --once: at least one peer answers, and there is no leader
  9  serve, recover: the peer must not participate with its directory. It was founded separately,
     its directory or log was lost, is a copy or was restored from an earlier state, the cluster
     was recovered without it, or it has applied other entries than a majority. The message
     contains the remedy
  10 config: a peer to be deleted does not exist; nothing was done
  11 config: a peer to be added exists already; nothing was done
  12 it is unknown whether the update was or will be applied: repeat it with the request ID
     that is printed
  13 compact: the snapshot contains that entry already; nothing was done`

// exitCodes returns the title of exitHelp and its lines about the codes 0, 1, 2 and others.
func exitCodes(others ...int) string {
	var b strings.Builder
	documented := true // the current line belongs to the result; the first line, the title, always does
	for line := range strings.Lines(exitHelp) {
		var code int
		if line[2] != ' ' { // the line does not continue the previous line
			if n, _ := fmt.Sscan(line, &code); n == 1 {
				documented = code <= cmdline.Usage || slices.Contains(others, code)
			}
		}
		if documented {
			b.WriteString(line)
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// newUsageError returns an error with the exit code of wrong usage.
func newUsageError(format string, args ...any) error {
	return cmdline.Errorf(cmdline.Usage, format, args...)
}

// exitCode returns the exit code of a command that has returned err.
func exitCode(err error) int {
	var code *cmdline.Error
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return code.Code
	case errors.Is(err, api.ErrIdentity):
		return cmdline.Identity
	case errors.Is(err, api.ErrUnknownOutcome):
		return cmdline.Unknown
	case errors.Is(err, api.ErrNoSpace):
		return cmdline.Failed
	case errors.Is(err, api.ErrFault), errors.Is(err, offline.ErrCorrupt),
		errors.Is(err, offline.ErrSnapshot), errors.Is(err, offline.ErrMalformed), errors.Is(err, offline.ErrDirectory):
		return cmdline.Permanent
	case errors.Is(err, fs.ErrNotExist):
		return cmdline.Usage
	}
	return cmdline.Failed
}
