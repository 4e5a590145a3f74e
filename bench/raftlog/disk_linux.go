package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// checkDisk returns an error if the files of dir are in memory, because a sync costs nothing there.
func checkDisk(dir string) error {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return fmt.Errorf("determine the file system of %s: %w", dir, err)
	}
	if s.Type == unix.TMPFS_MAGIC || s.Type == unix.RAMFS_MAGIC {
		return fmt.Errorf("%s is in memory (tmpfs), and a sync costs nothing there: select a directory on a disk with -dir", dir)
	}
	return nil
}

// syncData waits until the written data is on the disk, with the metadata that is needed to read it.
func syncData(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return err
		}
	}
}
