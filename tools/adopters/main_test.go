package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRemoveDeclarations fails if removeDeclarations keeps a declaration with one of the names or an import that
// nothing uses, or removes another declaration.
func TestRemoveDeclarations(t *testing.T) {
	changed, removed, err := removeDeclarations([]byte(`package p

import (
	"errors"
	"os"
)

type kept struct{}

// replaced is of no use any more.
type replaced struct{}

func (r *replaced) method() error { return os.ErrExist }

func (kept) method() error { return errors.New("kept") }

func (kept) other() {}

func function() { _, _ = os.Getwd() }
`), []string{"replaced", "kept.other", "function"})
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"replaced", "replaced.method", "kept.other", "function"}, removed)
	for _, absent := range []string{`"os"`, "Getwd", "ErrExist", "other", "type replaced"} {
		require.NotContains(t, string(changed), absent)
	}
	require.Contains(t, string(changed), `errors.New("kept")`)
}

// TestRemoveReplaced_Missing fails if an adapter is used although the project does not declare what it replaces.
func TestRemoveReplaced_Missing(t *testing.T) {
	a := adopter{dir: ".", replaced: []string{"run", "absent"}}
	require.EqualError(t, a.removeReplaced(t.TempDir()), ". does not declare run or absent")
}
