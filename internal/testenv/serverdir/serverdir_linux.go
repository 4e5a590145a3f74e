package serverdir

import "golang.org/x/sys/unix"

// free is the number of bytes that can be written to a file system in memory.
func free(folder string) uint64 {
	var is unix.Statfs_t
	if unix.Statfs(folder, &is) != nil || is.Type != unix.TMPFS_MAGIC || unix.Access(folder, unix.W_OK) != nil {
		return 0
	}
	return is.Bavail * uint64(is.Bsize)
}
