package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRunElection checks that the example shows two transfers of leadership. It runs in fake time, because a
// busy machine would cause more changes of state.
func TestRunElection(t *testing.T) {
	var out strings.Builder
	synctest.Test(t, func(t *testing.T) {
		require.NoError(t, runElection(t.Context(), "memory:", 250*time.Millisecond, &out))
	})
	text := out.String()
	require.Equal(t, 3, strings.Count(text, "state changed to follower"), text)
	require.Equal(t, 3, strings.Count(text, "state changed to leader"), text)
	require.Contains(t, text, "feedA is leader: ")
	require.ErrorContains(t, runElection(t.Context(), "oracle://x", time.Second, &out), "expected one of")
}
