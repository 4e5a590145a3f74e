//go:build !unix

package cmdline

import "io/fs"

// hasPrivateGroup returns false.
func hasPrivateGroup(fs.FileInfo) bool { return false }
