//go:build unix

package main

import (
	"os"
	"syscall"
)

// passedOn are the signals that a program gets from elector.
var passedOn = []os.Signal{syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH}
