//go:build unix

package cmdline

import (
	"io/fs"
	"syscall"
)

// hasPrivateGroup reports whether the group of a file is the private group of its owner.
func hasPrivateGroup(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && isPrivateGroup(s.Uid, s.Gid)
}
