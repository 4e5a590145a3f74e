//go:build unix

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// TestZooKeeper_LeaderIsReplaced checks that a leader that is killed or resigns is replaced, that two
// programs do not work at the same time, and that other commands work.
func TestZooKeeper_LeaderIsReplaced(t *testing.T) {
	t.Parallel()
	h := newZooKeeperHarness(t)
	h.runFlags = func(string) []string { return []string{"--grace", "10ms"} }
	h.command("end").requireExit(cmdline.Failed, "/jobs/one: there is no such election on zookeeper")
	h.command("delete").requireExit(cmdline.OK)
	h.requireSuccession(func() {})
	require.NotContains(t, h.srv.Tree(), "one")
}

// TestEnd_StopsProgramBeforeElectorExits checks that a program is stopped before elector exits when the election has ended.
func TestEnd_StopsProgramBeforeElectorExits(t *testing.T) {
	h := newZooKeeperHarness(t)
	a := h.lead("a", graceful)
	h.command("end").requireExit(cmdline.OK)
	a.requireExit(cmdline.Permanent)
	h.requireOrder("a", "a ends")
	require.NotContains(t, h.srv.Tree(), "one")
}
