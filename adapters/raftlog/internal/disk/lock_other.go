//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package disk

import (
	"errors"
	"os"
)

// lockFile returns an error: without a lock that ends with its process, two processes could write
// the same log.
func lockFile(*os.File) error { return errors.ErrUnsupported }
