//go:build unix

package testenv

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// pauseLimit is how long PauseProcess waits. A thread in a system call that cannot be interrupted, such as fsync,
// stops only when the call returns.
const pauseLimit = 30 * time.Second

// PauseProcess suspends p with SIGSTOP, and returns when no thread of p runs any more. The system call that sends
// the signal returns earlier: one thread must run to receive the signal and pass it on to the other threads. On a
// busy machine this takes tens of milliseconds, in which the other threads continue to answer requests.
//
// PauseProcess returns an error if p does not exist, or if a thread of p still runs after 30 seconds. It returns
// nil if p ends in the meantime. On a system without /proc, such as macOS, PauseProcess does not wait.
func PauseProcess(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("pause process %d: %w", p.Pid, err)
	}
	for start := time.Now(); anyThreadRuns(p.Pid); time.Sleep(time.Millisecond) {
		if time.Since(start) > pauseLimit {
			return fmt.Errorf("pause process %d: not stopped within %v", p.Pid, pauseLimit)
		}
	}
	return nil
}

// ResumeProcess continues a process that PauseProcess has suspended. It returns an error if p does not exist.
func ResumeProcess(p *os.Process) error {
	if err := p.Signal(syscall.SIGCONT); err != nil {
		return fmt.Errorf("resume process %d: %w", p.Pid, err)
	}
	return nil
}

// anyThreadRuns reports whether a thread of the process is neither suspended nor ended. It returns false if the
// process does not exist, or if the system has no /proc.
func anyThreadRuns(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, name := range threads {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // the thread has ended
		}
		// The state follows the name of the command, which is in parentheses and may contain any character.
		_, after, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
		if len(after) > 0 && !bytes.ContainsRune([]byte("TtZX"), rune(after[0])) {
			return true
		}
	}
	return false
}

// processExists reports whether a process of any user has this ID.
func processExists(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
