package child

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// becomeSubreaper makes orphaned descendants of this process its children, so that waitForGroup can wait for them. It
// also sets the name of this process, which would otherwise be "exe", the last element of ownExecutable.
func becomeSubreaper() {
	_ = os.WriteFile("/proc/self/comm", []byte(watchdogName), 0)
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// ownExecutable returns a path of the binary of this process that is valid even if the file was replaced or deleted.
func ownExecutable() (string, error) { return "/proc/self/exe", nil }

// programAttributes returns the attributes that put the program in a new process group, and make the kernel kill the
// program when the watchdog dies.
func programAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// waitForGroup waits until all processes of the group have exited, and then closes the channel empty.
func waitForGroup(group int, empty chan<- struct{}) {
	defer close(empty)
	for {
		if _, err := syscall.Wait4(-group, nil, 0, nil); err != nil && !errors.Is(err, syscall.EINTR) {
			return // no child is left in the group
		}
	}
}
