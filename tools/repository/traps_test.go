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

// TestScenarios_AreListed checks that docs/traps.md lists each failure scenario that the comment of a test names, and
// that each listed scenario has a test.
func TestScenarios_AreListed(t *testing.T) {
	page, err := os.ReadFile("docs/traps.md")
	require.NoError(t, err)
	listed := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(string(page), -1) {
		require.False(t, listed[row[1]], "scenario %s is listed twice", row[1])
		listed[row[1]] = true
	}
	tested := map[string]bool{"31": true} // scenario 31 does not apply to this library
	comment := regexp.MustCompile(`(?m)^(//.*\n)+func Test`)
	scenario := regexp.MustCompile(`(?m)^// Scenario (\d+) of docs/traps\.md\.$`)
	err = filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, c := range comment.FindAllString(string(text), -1) {
			for _, number := range scenario.FindAllStringSubmatch(c, -1) {
				tested[number[1]] = true
			}
		}
		return err
	})
	require.NoError(t, err)
	require.Equal(t, listed, tested)
}
