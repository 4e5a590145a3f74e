package testenv

import "syscall"

// Package syscall does not define these constants of linux/magic.h and unistd.h.
const (
	tmpfsMagic = 0x01021994
	writeOK    = 2
)

// freeMemory returns the free space of a file system in memory, in bytes. It returns 0 if dir is
// on a disk, or is not writable.
func freeMemory(dir string) uint64 {
	var stat syscall.Statfs_t
	if syscall.Statfs(dir, &stat) != nil || stat.Type != tmpfsMagic || syscall.Access(dir, writeOK) != nil {
		return 0
	}
	return stat.Bavail * uint64(stat.Bsize)
}
