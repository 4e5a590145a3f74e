//go:build unix && !linux

package child

// This file is for systems on which a process cannot wait for orphaned descendants, and on which the
// kernel does not kill a program whose watchdog was killed.

import (
	"os"
	"syscall"
)

func becomeSubreaper() {}

func ownExecutable() (string, error) { return os.Executable() }

func programAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// waitForGroup kills the other processes of the group, and closes the channel empty without waiting for them,
// because they are not children of this process.
func waitForGroup(group int, empty chan<- struct{}) {
	_ = syscall.Kill(-group, syscall.SIGKILL)
	close(empty)
}
