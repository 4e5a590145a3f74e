//go:build unix

package main

import (
	"errors"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTableOfBackends compares the table of commands by backend in docs/elector.md with the
// commands. Its first column has command lines, the others the backends.
func TestTableOfBackends(t *testing.T) {
	text, err := os.ReadFile("../../docs/elector.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "The backends support these commands:\n\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	var rows [][]string
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	backends := rows[0][1:]
	require.ElementsMatch(t, slices.Collect(maps.Keys(kinds)), backends)
	listed := map[string]bool{}
	for _, row := range rows[2:] {
		for _, code := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[0], -1) {
			args := strings.Fields(code[1])
			listed[args[0]] = true
			for i, backend := range backends {
				root := newRoot()
				root.SetOut(io.Discard)
				root.SetArgs(append(args, "--backend", backend)) // without servers or a program
				err := root.Execute()
				require.Error(t, err, "%s on %s", code[1], backend)
				require.Equal(t, exitUsage, exitCode(err), "%s on %s: %v", code[1], backend, err)
				want := map[bool]string{true: "no", false: "yes"}[errors.Is(err, errors.ErrUnsupported)]
				require.Equal(t, want, row[i+1], "%s on %s: %v", code[1], backend, err)
			}
		}
	}
	for _, cmd := range newRoot().Commands() {
		name := cmd.Name()
		if cmd.Annotations[withoutBackend] == "" && name != "help" && name != "completion" {
			require.True(t, listed[name], "the table does not list %s", name)
		}
	}
}
