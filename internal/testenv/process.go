package testenv

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
)

// Process is a child process that a test can pause and kill.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended and StartProcess has collected its exit status
}

// StartProcess starts cmd. On Linux, the kernel kills the child when this process ends, even if this process is
// killed. The child is in a separate process group, so that an interrupt from the terminal does not end it. On
// other systems the caller must kill the child.
func StartProcess(cmd *exec.Cmd) (*Process, error) {
	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer close(p.done)
		// The kernel kills the child when the thread that has started the child ends. This goroutine keeps the
		// thread until the child has ended.
		bindToThread(cmd)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the exit status does not matter
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// Pid returns the process ID.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Kill kills the process, paused or not, and waits until the process has ended. It returns the error of ctx if ctx
// is done first.
func (p *Process) Kill(ctx context.Context) error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Pause suspends the process as [PauseProcess] does.
func (p *Process) Pause() error { return PauseProcess(p.cmd.Process) }

// Resume continues a process that Pause has suspended.
func (p *Process) Resume() error { return ResumeProcess(p.cmd.Process) }

// LastLines returns the last 40 lines of a server's log, which are enough for a stack trace.
func LastLines(log string) string {
	lines := strings.Split(strings.TrimRight(log, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}

// LastLinesOf returns the last lines of a log file, or the text of the error if the file cannot be read.
func LastLinesOf(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return LastLines(string(text))
}
