package testenv

import (
	"os/exec"
	"runtime"
	"syscall"
)

// bindToThread locks the goroutine to its thread, and makes the kernel kill the child when that
// thread ends.
func bindToThread(cmd *exec.Cmd) {
	runtime.LockOSThread() // the goroutine never unlocks the thread, so both end together
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig, cmd.SysProcAttr.Setpgid = syscall.SIGKILL, true
}
