package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(t.Context(), "memory:", 50*time.Millisecond, &out))
	text := out.String()
	require.Equal(t, 3, strings.Count(text, "state changed to follower"), text)
	require.Equal(t, 3, strings.Count(text, "state changed to leader"), text)
	require.Contains(t, text, "feedA is leader: ")
	require.ErrorContains(t, run(t.Context(), "oracle://x", time.Second, &out), "known are etcd")
}
