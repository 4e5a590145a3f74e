package sqlfence

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStatements_AreInDocumentation checks that the documentation for administrators contains each SQL statement that
// Guard executes.
func TestStatements_AreInDocumentation(t *testing.T) {
	page, err := os.ReadFile("../docs/tasks/fencing.md")
	require.NoError(t, err)
	for _, statementsOf := range statementsOf {
		for _, s := range statementsOf("fence") {
			require.Contains(t, string(page), "`"+s.text+"`")
		}
	}
}
