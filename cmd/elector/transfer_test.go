//go:build unix && !no_changefeed

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// TestTransfer fails if the command does not make the named candidate the leader, or does not report that it
// does not exist, that there is no election, or that its time is over.
func TestTransfer(t *testing.T) {
	t.Parallel()
	h := newChangefeedHarness(t, "/jobs/transfer")
	none := h.command("transfer", "--to", "b")
	require.Equal(t, cmdline.NoLeader, none.exitCode())
	none.waitForLog("record does not exist")
	a := h.run("a", stubborn)
	a.waitForOutput("works")
	b := h.run("b", stubborn)
	b.waitForLog("follower")
	transfer := h.command("transfer", "--to", "b")
	transfer.waitForOutput("b leads")
	require.Equal(t, cmdline.OK, transfer.exitCode())
	b.waitForOutput("works")
	h.requireOrder("a", "b")

	unknown := h.command("transfer", "--to", "c")
	require.Equal(t, cmdline.NoLeader, unknown.exitCode())
	unknown.waitForLog("did not take over")
	late := h.command("transfer", "--to", "c", "--timeout", "300ms")
	require.Contains(t, []int{cmdline.NotLeft, cmdline.NoLeader}, late.exitCode())
	missing := h.command("transfer")
	require.Equal(t, cmdline.Usage, missing.exitCode())
	missing.waitForLog("--to is required")
}

// TestTransfer_Unsupported fails if the error does not name the backends that support transfers.
func TestTransfer_Unsupported(t *testing.T) {
	t.Parallel()
	p := start(t, "transfer", "--zookeeper-servers", "127.0.0.1:1", "--election", "/jobs/report", "--to", "b")
	require.Equal(t, cmdline.Usage, p.exitCode())
	p.waitForLog("of backend zookeeper, only of changefeed")
}
