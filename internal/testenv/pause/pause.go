//go:build unix

// Package pause stops processes with SIGSTOP, for tests, and waits until they have stopped.
//
// The system call that sends SIGSTOP returns before the process has stopped: one of its threads
// must run first, to take the signal and pass it on to the others. On a busy machine that takes
// tens of milliseconds, in which the other threads continue to answer requests.
package pause

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// limit is how long Stop waits. A thread that is in the middle of a system call which cannot be
// interrupted, such as fsync, stops when the call has returned.
const limit = 30 * time.Second

// Stop stops p and returns when none of its threads runs any more. It returns an
// error if there is no such process, or if it has not stopped within 30 seconds. A process that
// ends in the meantime counts as stopped. Where the system has no /proc, as on macOS, Stop does
// not wait.
func Stop(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("pause: stop process %d: %w", p.Pid, err)
	}
	for began := time.Now(); runs(p.Pid); time.Sleep(time.Millisecond) {
		if time.Since(began) > limit {
			return fmt.Errorf("pause: process %d has not stopped within %v", p.Pid, limit)
		}
	}
	return nil
}

// Continue lets a process that Stop has stopped run again. It returns an error if there is no
// such process.
func Continue(p *os.Process) error {
	if err := p.Signal(syscall.SIGCONT); err != nil {
		return fmt.Errorf("pause: continue process %d: %w", p.Pid, err)
	}
	return nil
}

// runs reports whether any thread of the process pid is neither stopped nor ended. It is false
// if there is no such process, or no /proc.
func runs(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, name := range threads {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // The thread has ended.
		}
		// The state follows the command, which is in parentheses and may contain any character.
		_, after, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
		if len(after) > 0 && !bytes.ContainsRune([]byte("TtZX"), rune(after[0])) {
			return true
		}
	}
	return false
}
