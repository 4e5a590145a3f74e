package disk

import (
	"os"

	"golang.org/x/sys/windows"
)

// lockFile locks a range of the file. The lock belongs to the handle of f and ends when f is closed.
func lockFile(f *os.File) error {
	err := windows.LockFileEx(windows.Handle(f.Fd()),
		windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, new(windows.Overlapped))
	if err == windows.ERROR_LOCK_VIOLATION {
		return ErrLocked
	}
	return err
}
