package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRun fails if a job has no result, or several.
func TestRun(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(t.Context(), "", &out))
	require.Contains(t, out.String(), "dead letter: job 7: cannot be done, after 2 attempts\n")
	require.Contains(t, out.String(), "and have 9 results\n")
}
