//go:build unix

package docker

import (
	"os/exec"
	"syscall"
)

// endTogether lets a command that is cancelled end with all its children, and
// gives them the chance to tidy up.
func endTogether(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
}
