//go:build unix

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// TestZooKeeper_LeaderIsReplaced checks on the backend zookeeper that another candidate replaces a leader that is
// killed or resigns, that two programs never run at the same time, and that the commands end and delete work.
func TestZooKeeper_LeaderIsReplaced(t *testing.T) {
	t.Parallel()
	h := newZooKeeperHarness(t)
	h.runFlags = func(string) []string { return []string{"--grace", "10ms"} }
	h.command("end").requireExit(cmdline.Failed, "/jobs/one: there is no such election on zookeeper")
	h.command("delete").requireExit(cmdline.OK)
	h.requireSuccession(func() {})
	require.NotContains(t, h.srv.Tree(), "one")
}

// TestEnd_StopsProgramBeforeElectorExits checks that elector stops its program before it exits because the command
// end has ended the election.
func TestEnd_StopsProgramBeforeElectorExits(t *testing.T) {
	h := newZooKeeperHarness(t)
	a := h.lead("a", graceful)
	h.command("end").requireExit(cmdline.OK)
	a.requireExit(cmdline.Permanent)
	h.requireOrder("a", "a ends")
	require.NotContains(t, h.srv.Tree(), "one")
}
