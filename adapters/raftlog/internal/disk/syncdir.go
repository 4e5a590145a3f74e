//go:build !windows

package disk

// A directory is synced like a file.

import (
	"errors"
	"os"
)

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
