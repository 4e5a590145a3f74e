// Package referencetest compares the command references in docs/commands with the help texts.
package referencetest

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Compare requires that a file has a text, or writes it there.
func Compare(t testing.TB, file, text string, write bool) {
	t.Helper()
	if write {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	lines := strings.Split(text, "\n")
	for i, line := range strings.Split(string(want), "\n") {
		require.True(t, i < len(lines) && line == lines[i], "line %d of %s is out of date, %q: run make reference", i+1, file, line)
	}
	require.Len(t, text, len(want), "%s is out of date: run make reference", file)
}
