//go:build unix

package docker

import (
	"os/exec"
	"syscall"
)

// killGroupOnCancel makes the cancellation of a command send SIGTERM to its child processes as well, so that they can
// clean up.
func killGroupOnCancel(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
}
