//go:build !unix

package cmdline

import "io/fs"

// hasPrivateGroup reports whether the group of a file is the private group of its owner: never, because only
// files on Unix have a group.
func hasPrivateGroup(fs.FileInfo) bool { return false }
