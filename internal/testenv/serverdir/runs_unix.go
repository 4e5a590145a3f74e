//go:build unix

package serverdir

import (
	"errors"
	"syscall"
)

// runs tells whether a process with this number exists, whosever it is.
func runs(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
