//go:build unix

package disk

import (
	"io/fs"
	"syscall"
)

// openDirectly contains the flags that make opening a named pipe return without waiting for a writer, and
// that make opening a symbolic link fail.
const openDirectly = syscall.O_NONBLOCK | syscall.O_NOFOLLOW

// ownerOf returns the ID of the user who owns a file.
func ownerOf(info fs.FileInfo) (user int, known bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
}
