//go:build unix

package main

import (
	"os"
	"syscall"
)

// forwardedSignals are the signals that elector forwards to the program.
var forwardedSignals = []os.Signal{syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH}
