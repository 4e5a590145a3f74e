package repository_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/go-leaderelection/leaderelection/tools/repository"
)

// TestMain lets the tests run in the root of the repository, and in its workspace.
func TestMain(m *testing.M) {
	if err := enterRoot(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	m.Run()
}

func enterRoot() error {
	root, err := repository.Root()
	if err != nil {
		return err
	}
	if err := os.Setenv("GOWORK", "auto"); err != nil { // the value off, which the tools need, is not for go list
		return err
	}
	return os.Chdir(root)
}
