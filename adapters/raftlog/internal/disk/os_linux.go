package disk

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// allocate reserves space for the file by fallocate, if the file system supports it.
func allocate(f *os.File, size int64) error {
	err := withDescriptor(f, func(fd int) error { return unix.Fallocate(fd, 0, 0, size) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return err
}

// datasync makes the data and the length of the file durable. Unlike fsync, it does not write other
// metadata of the file.
func datasync(f *os.File) error { return withDescriptor(f, unix.Fdatasync) }

// withDescriptor calls operation with the descriptor of the file, which cannot be closed during the
// call. If a signal interrupts the call, withDescriptor repeats it.
func withDescriptor(f *os.File, operation func(fd int) error) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	err = c.Control(func(fd uintptr) {
		for result = unix.EINTR; result == unix.EINTR; {
			result = operation(int(fd))
		}
	})
	if err != nil {
		return os.ErrClosed // Control fails only for a closed file, but its error does not say so
	}
	return result
}
