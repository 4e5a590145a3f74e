package etcdserver

// Child processes that cannot outlive this one, not even when it is killed.

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/go-leaderelection/leaderelection/internal/testenv/pause"
)

// startProcess starts cmd. The kernel ends a child when the thread that started it ends, so
// that thread is kept until the child has.
func startProcess(cmd *exec.Cmd, log *os.File) (*process, error) {
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer close(p.done)
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended does not matter
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func freeze(p *os.Process) error { return pause.Stop(p) }

func thaw(p *os.Process) error { return pause.Continue(p) }
