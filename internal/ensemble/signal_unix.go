//go:build unix

package ensemble

// Signals that freeze a process, let it go on and end a family of processes.

import (
	"os"
	"os/exec"
	"syscall"
)

func freeze(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func thaw(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// endTogether lets a command that is cancelled end with all its children, and
// gives them the chance to tidy up.
func endTogether(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
}
