//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package disk

import (
	"os"

	"golang.org/x/sys/unix"
)

// lockFile locks the open file by flock. The lock belongs to the open file and not to the process, so it also
// excludes other callers in this process. The system releases the lock when the process ends.
func lockFile(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		return ErrLocked
	}
	return err
}
