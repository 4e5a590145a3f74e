//go:build unix

package cmdline

import (
	"os"
	"os/signal"
	"syscall"
)

// programSignals are the signals that have a meaning only for a program.
var programSignals = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH}

// IgnoreBrokenPipe lets a process continue without its log if the reader of standard error exits. By default, the
// next write to standard error would end a Go program. Children of this process do not inherit this behavior.
func IgnoreBrokenPipe() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// ReapChildren reaps every child of this process that has exited, including orphans that this process has not started
// but adopts as the first process of a container. Only the main function may call ReapChildren, because nothing else
// receives the exit status of a child afterwards.
func ReapChildren() {
	// FindProcess makes package os check whether it can use pidfds, which starts a child and reaps it.
	// Do this now: if this function reaped that child, package os would use process IDs, which may be
	// reused.
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Release()
	}
	exited := make(chan os.Signal, 1)
	signal.Notify(exited, syscall.SIGCHLD)
	go func() { // this goroutine runs until the process exits
		for {
			for {
				pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
				if pid <= 0 && err != syscall.EINTR {
					break
				}
			}
			<-exited
		}
	}()
}
