// Package repository tests what concerns several modules: documents, workflows, dependencies, the size
// of the API and the list of failure scenarios. Test with -count 1: the go command keeps a result
// although files outside of the module tools have changed.
package repository

import (
	"fmt"
	"os"
	"testing"
)

// TestMain runs the tests in the root directory of the repository, with its go.work.
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
