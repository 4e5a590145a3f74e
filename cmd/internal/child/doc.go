// Package child runs a program in a process group of its own that cannot outlive what
// it depends on: its parent, and a lease.
//
// Between the program and its parent stands a guard, a process of the parent's own
// binary. It starts the program, and ends the whole group (TERM, then KILL) when the
// parent says so, when the parent has died in whatever way, and when the lease has
// run out, also while the parent is stopped and can say nothing.
//
// The binary calls [Guard] first of all in its main function, and in TestMain.
//
// # Limits
//
// A process that leaves the group, by setsid for instance, is not found any more. When
// guard and parent are killed in the same moment, the kernel kills the program itself,
// on Linux, but not what it has started. When the guard is stopped together with its
// parent, so should the program be, as by a cgroup's freezer: nobody watches the lease.
// Nothing is run on Windows.
package child

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// Command is what to run, and for how long at most. Only Args is required.
type Command struct {
	Args []string // the program, looked up in PATH, and its arguments; see Shell
	Env  []string // all of the environment, as os.Environ; nil for this process's own
	// Stdin is the standard input, which is empty if nil. It must not be a terminal: the
	// program's group is not in the foreground, so it is stopped if it reads from one.
	Stdin *os.File
	// Stdout and Stderr are where output goes, to nowhere if nil.
	Stdout, Stderr *os.File

	// Grace is how long the group has between TERM and KILL; with zero there is no TERM.
	Grace time.Duration
	// Lease says until when the program may run; nil, and the zero time, stand for no
	// limit. It is asked again and again from another goroutine, until Done, and must not
	// block. At its end the group gets TERM.
	Lease func() time.Time
	// LostGrace is how long after the lease, or, when that is over already, after TERM
	// KILL comes, if Grace does not end before.
	LostGrace time.Duration
	// Sweep ends what is left of the group when the program has ended by itself. When
	// it was stopped, that is done in any case.
	Sweep bool
}

// Shell are the Args that run a script by the shell.
func Shell(script string) []string { return []string{"/bin/sh", "-c", script} }

// Exit is how a program has ended.
type Exit struct {
	// Code is the exit code; of a program that a signal has ended, 128 and its number,
	// as shells have it.
	Code int
	// Stopped says that the program was told to end: by Stop, or by the guard.
	Stopped bool
	// Err is set when how it ended is not known, as the guard has died.
	Err error
}

var (
	// ErrNotFound: there is no such program.
	ErrNotFound = errors.New("program not found")
	// ErrGuardDied: somebody has ended the guard. The group was killed.
	ErrGuardDied = errors.New("the guard of a program has died")
)

// ExitError is the error of a program that has failed, or was stopped.
type ExitError struct {
	Exit
}

func (e *ExitError) Error() string {
	switch {
	case e.Err != nil:
		return e.Err.Error()
	case e.Stopped:
		return fmt.Sprintf("stopped (exit code %d)", e.Code)
	}
	return fmt.Sprintf("exit code %d", e.Code)
}

func (e *ExitError) Unwrap() error { return e.Err }
