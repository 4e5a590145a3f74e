package main

import (
	"go/format"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// repositoryRoot is the root of the repository.
const repositoryRoot = "../.."

// testLimit is how long the tests of a mutant may take in TestRunner_Outcomes: one of them hangs.
const testLimit = 10 * time.Second

// TestTable_MatchesCode fails if an edit of the table does not apply, if the edited file cannot be
// parsed, or if a test that the table names does not exist.
func TestTable_MatchesCode(t *testing.T) {
	names := map[string]bool{}
	for _, m := range table() {
		require.NotEmpty(t, m.name)
		require.False(t, names[m.name], "two mutants are named %s", m.name)
		names[m.name] = true
		require.NotEmpty(t, m.breaks, m.name)
		text, err := m.mutate(repositoryRoot)
		require.NoError(t, err)
		_, err = format.Source(text)
		require.NoError(t, err, m.name)
		if m.equivalent == "" {
			requireTests(t, &m)
		}
	}
}

// requireTests requires that the packages exist and contain the tests that -run names.
func requireTests(t *testing.T, m *mutant) {
	t.Helper()
	var pattern string
	var source strings.Builder
	args := strings.Fields(m.tests)
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case arg == "-run":
			i++
			pattern, _, _ = strings.Cut(args[i], "/") // the rest selects subtests
		case arg == "." || strings.HasPrefix(arg, "./"):
			files, err := filepath.Glob(filepath.Join(repositoryRoot, arg, "*_test.go"))
			require.NoError(t, err)
			require.NotEmpty(t, files, "%s: package %s has no tests", m.name, arg)
			for _, file := range files {
				data, err := os.ReadFile(file)
				require.NoError(t, err)
				source.Write(data)
			}
		}
	}
	require.NotZero(t, source.Len(), "%s names no package: %q", m.name, m.tests)
	matches, err := regexp.Compile(pattern)
	require.NoError(t, err)
	for _, test := range regexp.MustCompile(`(?m)^func (Test\w+)`).FindAllStringSubmatch(source.String(), -1) {
		if matches.MatchString(test[1]) {
			return
		}
	}
	require.Fail(t, "no test matches", "%s: -run %s", m.name, pattern)
}

// TestRunner_Outcomes fails if the runner misjudges a mutant that is killed, survives, hangs, or
// does not build. The mutants are of a module that the test creates.
func TestRunner_Outcomes(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":  "module example\n\ngo 1.26\n",
		"go.work": "go 1.26\n\nuse .\n", // not that of a directory above
		"abs.go":  "package example\n\nfunc abs(n int) int {\n\tif n < 0 {\n\t\treturn -n\n\t}\n\treturn n\n}\n",
		"abs_test.go": "package example\n\nimport \"testing\"\n\nfunc TestAbs(t *testing.T) {\n" +
			"\tif abs(-1) != 1 {\n\t\tt.Error(\"abs(-1) is not 1\")\n\t}\n}\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	t.Setenv("GOFLAGS", "")
	r := runner{root: dir, limit: testLimit, passing: map[string]bool{}}
	mutate := func(old, new string) *mutant {
		return &mutant{name: "abs", file: "abs.go", edits: []edit{{old, new}}, tests: "."}
	}

	by, err := r.runMutant(t.Context(), mutate("return -n", "return n"))
	require.NoError(t, err)
	require.Equal(t, "TestAbs", by)
	_, err = r.runMutant(t.Context(), mutate("n < 0", "n <= 0"))
	require.ErrorIs(t, err, errSurvived)
	_, err = r.runMutant(t.Context(), mutate("return -n", "return missing"))
	require.ErrorIs(t, err, errDoesNotRun)
	_, err = r.runMutant(t.Context(), mutate("return -n", "for {\n\t\t}"))
	require.ErrorIs(t, err, errHung)
	_, err = r.runMutant(t.Context(), mutate("return", "panic"))
	require.ErrorContains(t, err, "occurs 2 times")
}
