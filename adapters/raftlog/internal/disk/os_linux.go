package disk

// Linux syncs what is needed to read the data again and nothing else (fdatasync), and
// reserves space (fallocate).

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func allocate(f *os.File, size int64) error {
	err := call(f, func(fd int) error { return unix.Fallocate(fd, 0, 0, size) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil // this file system reserves nothing
	}
	return err
}

func datasync(f *os.File) error { return call(f, unix.Fdatasync) }

// call calls with the file's descriptor, which stays its own meanwhile, and again if a signal
// has interrupted it.
func call(f *os.File, do func(fd int) error) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	err = c.Control(func(fd uintptr) {
		for result = unix.EINTR; result == unix.EINTR; {
			result = do(int(fd))
		}
	})
	if err != nil {
		return os.ErrClosed // Control has no other error, and names this one only to os
	}
	return result
}
