//go:build unix

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// TestEndAndDelete fails if a command does not end the election, or fails in a wrong case.
func TestEndAndDelete(t *testing.T) {
	h := newZooKeeperHarness(t)
	none := h.command("end")
	require.Equal(t, cmdline.Failed, none.exitCode())
	none.waitForLog("/jobs/one: there is no such election on zookeeper")
	require.Equal(t, cmdline.OK, h.command("delete").exitCode())
	for _, command := range []string{"end", "delete"} {
		a := h.run("a", graceful)
		a.waitForOutput("started")
		require.Equal(t, cmdline.OK, h.command(command).exitCode())
		require.Equal(t, cmdline.Permanent, a.exitCode())
		require.NotContains(t, h.srv.Tree(), "one")
	}
}
