package serverdir

import "syscall"

// From linux/magic.h and unistd.h; package syscall does not define them.
const (
	tmpfs    = 0x01021994
	writable = 2
)

// free is the number of bytes that can be written to a file system in memory.
func free(folder string) uint64 {
	var is syscall.Statfs_t
	if syscall.Statfs(folder, &is) != nil || is.Type != tmpfs || syscall.Access(folder, writable) != nil {
		return 0
	}
	return is.Bavail * uint64(is.Bsize)
}
