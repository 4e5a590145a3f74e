package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestReadme_FirstProgramRuns checks that the first program of README.md is short, and runs after it was copied into
// an empty module. The program is compiled with the library of this repository, and needs no network.
func TestReadme_FirstProgramRuns(t *testing.T) {
	root, err := os.Getwd()
	require.NoError(t, err)
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	program := regexp.MustCompile("(?s)```go\n(.*?)```").FindSubmatch(readme)
	require.NotNil(t, program)
	lines := 0
	for line := range strings.Lines(string(program[1])) {
		if strings.TrimSpace(line) != "" {
			lines++
		}
	}
	assert.LessOrEqual(t, lines, 15, "lines of the first program that are not empty")

	dir := t.TempDir()
	sums, err := os.ReadFile("go.sum")
	require.NoError(t, err)
	for name, content := range map[string]string{
		"main.go": string(program[1]),
		"go.mod":  fmt.Sprintf("module program\n\ngo 1.25.0\n\nrequire %s v0.1.0\n\nreplace %s => %s\n", core, core, root),
		"go.sum":  string(sums),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	run := exec.Command("go", "run", ".")
	run.Dir, run.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "GOPROXY=off")
	out, err := run.CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Regexp(t, `(?m)^this replica leads with token \d+$`, string(out))
}

// TestReadme_IsShort checks that README.md has few enough lines to be read, and that no table has more columns than a
// narrow page can show.
func TestReadme_IsShort(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSuffix(string(readme), "\n"), "\n")
	assert.LessOrEqual(t, len(lines), 130)
	for _, line := range lines {
		if strings.HasPrefix(line, "|") {
			assert.LessOrEqual(t, strings.Count(line, "|")-1, 4, "columns of %s", line)
		}
	}
}
