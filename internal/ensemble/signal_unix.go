//go:build unix

package ensemble

// Signals that stop a process, let it run again and end a family of processes.

import (
	"os"
	"os/exec"
	"syscall"

	"github.com/go-leaderelection/leaderelection/internal/pause"
)

func freeze(p *os.Process) error { return pause.Stop(p) }

func thaw(p *os.Process) error { return pause.Continue(p) }

// endTogether lets a command that is cancelled end with all its children, and
// gives them the chance to tidy up.
func endTogether(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
}
