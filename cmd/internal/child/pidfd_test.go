//go:build linux

package child

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// pidfd tells of the end of any process.
type pidfd int

func pidfdOpen(pid int) (pidfd, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	return pidfd(fd), err
}

func (fd pidfd) wait(limit time.Duration) error {
	end := time.Now().Add(limit)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(time.Until(end).Milliseconds()))
		switch {
		case n > 0:
			return nil
		case err == nil || time.Now().After(end):
			return os.ErrDeadlineExceeded
		case err != unix.EINTR:
			return err
		}
	}
}

func (fd pidfd) Close() { _ = unix.Close(int(fd)) }
