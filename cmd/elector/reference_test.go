//go:build unix

package main

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

var update = flag.Bool("update", false, "write the command reference, and other files of expected output")

// TestReference fails if docs/commands/elector.md differs from the help texts.
func TestReference(t *testing.T) {
	reference := cmdline.Reference(newRoot(), flagGroups...)
	require.NoError(t, cmdline.CheckReference("../../docs/commands/elector.md", reference, *update))
}
