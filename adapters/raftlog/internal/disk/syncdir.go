//go:build !windows

package disk

import (
	"errors"
	"os"
)

// syncDir syncs a directory in the same way as a file.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
