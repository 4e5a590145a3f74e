package disk

// Linux syncs what is needed to read the data again and nothing else (fdatasync), and
// reserves space (fallocate).

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func allocate(f *os.File, size int64) error {
	err := restart(func() error { return unix.Fallocate(int(f.Fd()), 0, 0, size) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil // this file system reserves nothing
	}
	return err
}

func datasync(f *os.File) error {
	return restart(func() error { return unix.Fdatasync(int(f.Fd())) })
}

// restart repeats what a signal has interrupted.
func restart(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}
