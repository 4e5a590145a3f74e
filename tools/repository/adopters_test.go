package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRemoveDeclarations_KeepsOtherDeclarations checks that removeDeclarations removes exactly the declarations with
// the given names, and the imports that become unused.
func TestRemoveDeclarations_KeepsOtherDeclarations(t *testing.T) {
	changed, removed, err := removeDeclarations([]byte(`package p

import (
	"errors"
	"math/rand/v2"
	"os"
)

type kept struct{}

// replaced is of no use any more.
type replaced struct{}

func (r *replaced) method() error { return os.ErrExist }

func (kept) method() error { return errors.New("kept") }

var number = rand.Int()

func (kept) other() {}

func function() { _, _ = os.Getwd() }
`), []string{"replaced", "kept.other", "function"})
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"replaced", "replaced.method", "kept.other", "function"}, removed)
	for _, absent := range []string{`"os"`, "Getwd", "ErrExist", "other", "type replaced"} {
		require.NotContains(t, string(changed), absent)
	}
	require.Contains(t, string(changed), `errors.New("kept")`)
	require.Contains(t, string(changed), `"math/rand/v2"`)
}

// TestRemoveReplaced_RejectsMissingDeclarations checks that removeReplaced fails if the project does not contain a
// declaration that the adapter replaces.
func TestRemoveReplaced_RejectsMissingDeclarations(t *testing.T) {
	a := adopter{dir: ".", replaced: []string{"run", "absent"}}
	require.EqualError(t, a.removeReplaced(t.TempDir()), ". does not declare run or absent")
}

// TestReplaceImports_RequiresImport checks that replaceImports replaces an import in all files, and fails if no file
// contains the import.
func TestReplaceImports_RequiresImport(t *testing.T) {
	a := adopter{dir: ".", imports: map[string]string{"example.org/old": "example.org/new"}}
	dir := t.TempDir()
	name := filepath.Join(dir, "p.go")
	require.NoError(t, os.WriteFile(name, []byte("package p\n\nimport _ \"example.org/old\"\n"), 0o600))
	require.NoError(t, a.replaceImports(dir))
	changed, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, "package p\n\nimport _ \"example.org/new\"\n", string(changed))
	require.EqualError(t, a.replaceImports(dir), ". does not import example.org/old")
}
