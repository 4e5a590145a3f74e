//go:build unix

package main

import (
	"flag"
	"testing"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline/referencetest"
)

var update = flag.Bool("update", false, "write the command reference, and other files of expected output")

// TestReference compares docs/commands/raftlog.md with the help texts.
func TestReference(t *testing.T) {
	referencetest.Compare(t, "../../docs/commands/raftlog.md", cmdline.Reference(newRoot(), exitHelp, groupAccess), *update)
}
