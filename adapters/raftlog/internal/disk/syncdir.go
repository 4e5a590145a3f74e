//go:build !windows

package disk

import (
	"errors"
	"os"
)

// syncDir makes the names in a directory durable, by a sync of the directory like that of a file.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
