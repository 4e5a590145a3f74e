package main

import (
	"go/format"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// repositoryRoot is the root of the repository.
const repositoryRoot = "../.."

// testLimit is how long the tests of a mutant may take in TestRunner_RecognizesOutcomesOfMutants. hangLimit is the
// limit for a mutant whose tests hang.
const (
	testLimit = time.Minute
	hangLimit = time.Second
)

// TestTable_NamesExistingCodeAndTests checks that each mutant of the table can be applied to the code and results in
// valid Go syntax, and that the tests exist that the mutant names.
func TestTable_NamesExistingCodeAndTests(t *testing.T) {
	names := map[string]bool{}
	known := map[string][]string{}
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
			requireTests(t, &m, known)
		}
	}
}

// requireTests requires that the packages that m names exist, and contain tests that match its -run. known caches the
// names of the tests of packages, by the arguments for the packages.
func requireTests(t *testing.T, m *mutant, known map[string][]string) {
	t.Helper()
	var pattern string
	var tests []string
	args := strings.Fields(m.tests)
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case arg == "-run":
			i++
			pattern, _, _ = strings.Cut(args[i], "/") // the part after the slash selects subtests
		case arg == "." || strings.HasPrefix(arg, "./"):
			if _, ok := known[arg]; !ok {
				known[arg] = testsOf(t, arg)
			}
			require.NotEmpty(t, known[arg], "%s: package %s has no tests", m.name, arg)
			tests = append(tests, known[arg]...)
		}
	}
	require.NotEmpty(t, tests, "%s names no package: %q", m.name, m.tests)
	matches, err := regexp.Compile(pattern)
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(tests, matches.MatchString), "%s: no test matches -run %s", m.name, pattern)
}

// testsOf returns the names of the tests in a directory of the repository.
func testsOf(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(repositoryRoot, dir, "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, test := range regexp.MustCompile(`(?m)^func (Test\w+)`).FindAllSubmatch(text, -1) {
			names = append(names, string(test[1]))
		}
	}
	return names
}

// TestRunner_RecognizesOutcomesOfMutants checks that the runner distinguishes mutants that are killed, survive, hang
// or do not compile. The mutants are those of a module that the test creates.
func TestRunner_RecognizesOutcomesOfMutants(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":  "module example\n\ngo 1.26\n",
		"go.work": "go 1.26\n\nuse .\n", // hides the go.work of a parent directory
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
	_, err = r.runMutant(t.Context(), mutate("return", "panic"))
	require.ErrorContains(t, err, "occurs 2 times")
	r.limit = hangLimit
	_, err = r.runMutant(t.Context(), mutate("return -n", "for {\n\t\t}"))
	require.ErrorIs(t, err, errHung)
}
