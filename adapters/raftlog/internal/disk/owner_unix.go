//go:build unix

package disk

import (
	"io/fs"
	"syscall"
)

// openDirectly contains the flags with which opening a named pipe does not wait for a writer, and a link is
// not followed.
const openDirectly = syscall.O_NONBLOCK | syscall.O_NOFOLLOW

// ownerOf returns the number of the user to whom a file belongs.
func ownerOf(info fs.FileInfo) (user int, known bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
}
