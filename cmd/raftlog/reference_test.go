//go:build unix

package main

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/cmd/internal/manual"
)

var update = flag.Bool("update", false, "write the command reference, and other files of expected output")

var manuals = flag.String("manuals", "", "the directory to which TestManuals_AreComplete writes manual pages and completions (default: a temporary one)")

// TestReference_MatchesHelpTexts checks that docs/commands/raftlog.md contains the help texts of all commands.
// With the flag -update it writes the file.
func TestReference_MatchesHelpTexts(t *testing.T) {
	reference := cmdline.Reference(newRoot(), groupAccess)
	require.NoError(t, cmdline.CheckReference("../../docs/commands/raftlog.md", reference, *update))
}

// TestManuals_AreComplete checks that the manual pages and the completions are complete. "make manuals" writes them.
func TestManuals_AreComplete(t *testing.T) {
	manual.Test(t, *manuals, newRoot())
	manual.RequireCompletion(t, newRoot(), []string{"serve", "--log-level"}, "debug", "info", "warn", "error")
}
