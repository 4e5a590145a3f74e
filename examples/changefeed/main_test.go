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

// In fake time: a machine that is busy would add changes of state.
func TestRun(t *testing.T) {
	var out strings.Builder
	synctest.Test(t, func(t *testing.T) {
		require.NoError(t, run(t.Context(), "memory:", 250*time.Millisecond, &out))
	})
	text := out.String()
	require.Equal(t, 3, strings.Count(text, "state changed to follower"), text)
	require.Equal(t, 3, strings.Count(text, "state changed to leader"), text)
	require.Contains(t, text, "feedA is leader: ")
	require.ErrorContains(t, run(t.Context(), "oracle://x", time.Second, &out), "expected one of etcd")
}
