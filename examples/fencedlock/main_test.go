package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRun fails if a write without the lock is applied.
func TestRun(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(t.Context(), "", &out))
	require.Contains(t, out.String(), "greater token: true")
	require.Contains(t, out.String(), "ada adds 100 without the lock: lock: no longer held")
	require.Contains(t, out.String(), "bob adds 1: <nil>")
	require.Contains(t, out.String(), "the balance is 11")
}
