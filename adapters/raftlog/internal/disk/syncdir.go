//go:build !windows

package disk

import (
	"errors"
	"os"
)

// syncDir makes the names in a directory durable. On this system, a directory can be opened and synced like
// a file.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
