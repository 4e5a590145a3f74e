// Package child runs a program in a separate process group that cannot outlive its parent or a lease.
//
// The parent starts a watchdog: a second process of the parent's binary. The watchdog starts the
// program. It stops the whole process group, with TERM and then KILL, if the parent requests it, if
// the parent dies for any reason, and if the lease expires, even while the parent is suspended and
// cannot send anything.
//
// The main function of the binary must call [RunWatchdog] first, and so must TestMain.
//
// # Limits
//
//   - A process that leaves the group, for example by setsid, is not stopped.
//   - If the watchdog and the parent are killed at the same moment, the Linux kernel kills the
//     program, but not the processes that the program has started.
//   - If SIGSTOP suspends the watchdog and the parent, but not the program, the lease is not
//     enforced. Suspend all of them together, for example by the freezer of a cgroup.
//   - If the machine is suspended until the lease has expired, the program continues with it until
//     the watchdog has compared the lease with the wall clock, at most a quarter of a second later.
//   - Programs cannot be run on Windows.
package child

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// Command describes a program and the limits of its run time. Only Args is required.
type Command struct {
	// Args contains the program, which is looked up in PATH, and its arguments. [Shell] returns the Args that run a
	// script.
	Args []string
	// Env is the complete environment, in the form of os.Environ. If it is nil, the program
	// inherits the environment of this process.
	Env []string
	// Stdin is the standard input. If it is nil, the input is empty. Stdin must not be a terminal: the process group
	// of the program is not in the foreground, so the kernel would suspend the program when it reads.
	Stdin *os.File
	// Stdout and Stderr receive the output. If they are nil, the output is discarded.
	Stdout, Stderr *os.File

	// Grace is the time between TERM and KILL. If Grace is zero, the process group receives KILL only.
	Grace time.Duration
	// Lease returns the time until which the program may run, by the monotonic and by the wall clock; then the group
	// is stopped. If Lease is nil or returns the zero time, there is no limit. Lease is called periodically on other
	// goroutines until Done is closed, and must not block.
	Lease func() time.Time
	// LostGrace limits the time between the expiry of the lease and KILL, or between TERM and KILL if the lease
	// expired before TERM. This time is never longer than Grace.
	LostGrace time.Duration
	// Sweep makes the watchdog stop the other processes of the group if the program exits by itself. If the program
	// was stopped, the watchdog stops them in any case.
	Sweep bool
}

// Shell returns the Args that run a script with /bin/sh.
func Shell(script string) []string { return []string{"/bin/sh", "-c", script} }

// Exit describes how a program has exited.
type Exit struct {
	// Code is the exit code, or 128 + n if signal n has terminated the program, as shells report.
	Code int
	// Stopped reports whether Stop or the watchdog has stopped the program.
	Stopped bool
	// Err is set if the watchdog has died. In that case the exit code of the program is unknown.
	Err error
}

var (
	// ErrNotFound is returned if the program does not exist.
	ErrNotFound = errors.New("program not found")
	// ErrWatchdogDied is returned if the watchdog was killed, by another process, or by the parent because the
	// watchdog did not stop the program in time. The process group was killed as well.
	ErrWatchdogDied = errors.New("the watchdog of the program has died")
)

// ExitError is returned by [Run] if the program has failed, or if Stop or the watchdog has stopped the program.
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
