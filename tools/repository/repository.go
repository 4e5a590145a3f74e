// Package repository finds the repository in which a tool runs. Its tests check what concerns several
// modules: documents, workflows, dependencies, the size of the API and the list of failure scenarios. Test
// with -count 1: the go command keeps a result although a file outside the module tools has changed.
package repository

import (
	"errors"
	"os"
	"path/filepath"
)

var errNoRepository = errors.New("the current directory is not below one with a go.work")

// Root returns the root of the repository: the current directory or the nearest directory above it that
// contains go.work.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errNoRepository
		}
		dir = parent
	}
}
