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

// TestReference_MatchesHelpTexts checks that docs/commands/elector.md contains the current help texts of elector.
func TestReference_MatchesHelpTexts(t *testing.T) {
	reference := cmdline.Reference(newRoot(), flagGroups...)
	require.NoError(t, cmdline.CheckReference("../../docs/commands/elector.md", reference, *update))
}

// TestManuals_AreComplete checks that the manual pages and shell completions that elector generates are complete.
// "make manuals" writes them.
func TestManuals_AreComplete(t *testing.T) {
	manual.Test(t, *manuals, newRoot())
	manual.RequireCompletion(t, newRoot(), []string{"run", "--backend"}, allBackends()...)
	manual.RequireCompletion(t, newRoot(), []string{"status", "--log-format"}, "text", "json")
}
