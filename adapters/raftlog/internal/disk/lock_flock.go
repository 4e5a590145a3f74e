//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package disk

// flock locks the open file, not the process: so it excludes within one process as well, and
// ends with the process whatever way that ends.

import (
	"os"

	"golang.org/x/sys/unix"
)

func lock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		return ErrLocked
	}
	return err
}
