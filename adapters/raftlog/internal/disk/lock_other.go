//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package disk

import (
	"errors"
	"os"
)

// lockFile returns an error on this system, which has no lock that ends with its process: without such
// a lock, two processes could write the same log.
func lockFile(*os.File) error { return errors.ErrUnsupported }
