//go:build unix

package docker

import (
	"os/exec"
	"syscall"
)

// killGroupOnCancel makes the cancellation of a command terminate its child processes as well. They
// receive SIGTERM, so that they can clean up.
func killGroupOnCancel(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
}
