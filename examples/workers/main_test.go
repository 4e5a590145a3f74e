package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRun fails if the parts are not divided among the workers.
func TestRun(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(t.Context(), "", &out))
	require.Contains(t, out.String(), "ada joins:\n  ada: p1 p2 p3 p4 p5 p6 p7 p8\n")
	require.Contains(t, out.String(), "ada leaves:\n  bob: ")
}
