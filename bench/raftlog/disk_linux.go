package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// onDisk refuses a directory whose files are in memory, where a sync costs nothing.
func onDisk(dir string) error {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return fmt.Errorf("ask for the file system of %s: %w", dir, err)
	}
	if s.Type == unix.TMPFS_MAGIC || s.Type == unix.RAMFS_MAGIC {
		return fmt.Errorf("%s is in memory (tmpfs), where a sync costs nothing: name a directory on a disk with -dir", dir)
	}
	return nil
}

// syncData waits until what was written is on the disk, and as much of the metadata as
// is needed to read it.
func syncData(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return err
		}
	}
}
