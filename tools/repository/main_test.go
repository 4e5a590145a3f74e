package main

import (
	"fmt"
	"os"
	"testing"
)

// TestMain runs the tests in the root directory of the repository, with its workspace file go.work.
func TestMain(m *testing.M) {
	if err := enterRoot(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	m.Run()
}

func enterRoot() error {
	// The Makefile runs the tools with GOWORK=off, but go list needs the workspace.
	if err := os.Setenv("GOWORK", "auto"); err != nil {
		return err
	}
	return os.Chdir("../..")
}
