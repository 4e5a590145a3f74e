package cmdline

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCheckReference_RejectsOutdatedFile checks that CheckReference returns an error if the file differs from the
// generated reference, and writes the file if its argument update is true.
func TestCheckReference_RejectsOutdatedFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tool.md")
	require.Error(t, CheckReference(file, "a\nb\n", false), "the file does not exist")
	require.NoError(t, CheckReference(file, "a\nb\n", true))
	require.NoError(t, CheckReference(file, "a\nb\n", false))
	require.ErrorContains(t, CheckReference(file, "a\nc\n", false), "from line 2 on")
	require.ErrorContains(t, CheckReference(file, "a\nb\nc\n", false), "from line 3 on")
	require.NoError(t, CheckReference(file, "a\nc\n", true), "the file was not written")
}
