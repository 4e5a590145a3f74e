package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRun fails if the cache does not contain the changes.
func TestRun(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(t.Context(), "", &out))
	require.Contains(t, out.String(), "from memory: rate = 10")
	require.Contains(t, out.String(), "from memory: rate = 20 true")
	require.Contains(t, out.String(), "from memory: burst = 5 true")
	require.Contains(t, out.String(), "/configcache/burst 5")
}
