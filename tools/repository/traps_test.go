package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestScenarios_AreListed checks that each test that is named after a failure scenario has a scenario that
// docs/traps.md lists, and that each listed scenario has a test.
func TestScenarios_AreListed(t *testing.T) {
	page, err := os.ReadFile("docs/traps.md")
	require.NoError(t, err)
	listed := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(string(page), -1) {
		require.False(t, listed[row[1]], "scenario %s is listed twice", row[1])
		listed[row[1]] = true
	}
	tested := map[string]bool{"31": true} // scenario 31 does not apply to this library
	name := regexp.MustCompile(`(?m)^func Test\w*?Trap(\d+)`)
	err = filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, test := range name.FindAllStringSubmatch(string(text), -1) {
			tested[strings.TrimLeft(test[1], "0")] = true
		}
		return err
	})
	require.NoError(t, err)
	require.Equal(t, listed, tested)
}
