//go:build unix && !no_changefeed

package main

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// TestTransfer_NamedCandidateLeads checks on the backend changefeed that the command transfer makes the named
// candidate the leader after the program and the end command of the former leader have ended, and that it reports an
// unknown candidate, a missing election and the expiry of its timeout.
func TestTransfer_NamedCandidateLeads(t *testing.T) {
	t.Parallel()
	// With -count 2, the test uses another name in each run.
	h := newChangefeedHarness(t, fmt.Sprint("/jobs/transfer-", time.Now().UnixNano()))
	none := h.command("transfer", "--to", "b")
	require.Equal(t, cmdline.NoLeader, none.exitCode())
	none.waitForLog("record does not exist")
	a := h.run("a", stubborn, "--grace", "2s", "--leader-end-command", `echo "a ends" >> "$FILE"`)
	a.waitForOutput("works")
	b := h.run("b", stubborn)
	b.waitForLog("follower")
	transfer := h.command("transfer", "--to", "b")
	transfer.waitForOutput("b leads")
	require.Equal(t, cmdline.OK, transfer.exitCode())
	b.waitForOutput("works")
	h.requireOrder("a", "a ends", "b")

	unknown := h.command("transfer", "--to", "c")
	require.Equal(t, cmdline.NoLeader, unknown.exitCode())
	unknown.waitForLog("did not take over")
	late := h.command("transfer", "--to", "c", "--timeout", "300ms")
	require.Contains(t, []int{cmdline.NotLeft, cmdline.NoLeader, cmdline.Failed}, late.exitCode(), "Failed: the store has not answered in time")
	missing := h.command("transfer")
	require.Equal(t, cmdline.Usage, missing.exitCode())
	missing.waitForLog("--to is required")
}

// TestTransfer_LastCandidateInQueueLeads checks on the backend zookeeper that the command transfer makes the last
// candidate of the queue the leader, and that it reports an unknown candidate, and a leader that does not listen to
// requests.
func TestTransfer_LastCandidateInQueueLeads(t *testing.T) {
	t.Parallel()
	h := newZooKeeperHarness(t)
	none := h.command("transfer", "--to", "c")
	require.Equal(t, cmdline.NoLeader, none.exitCode())
	h.lead("a", stubborn, "--grace", "10ms")
	h.follow("b", stubborn, "--grace", "10ms")
	c := h.follow("c", stubborn, "--grace", "10ms")
	transfer := h.command("transfer", "--to", "c")
	transfer.waitForOutput("c leads")
	require.Equal(t, cmdline.OK, transfer.exitCode())
	c.waitForOutput("works")
	h.requireOrder("a", "c")

	unknown := h.command("transfer", "--to", "x")
	require.Equal(t, cmdline.NoLeader, unknown.exitCode())
	unknown.waitForLog("x is not a candidate")
	conn, _, err := h.srv.Connect(sessionTimeout)
	require.NoError(t, err)
	defer conn.Close()
	deaf, err := leaderelection.NewElection(conn, "/jobs/one", leaderelection.WithName("deaf"))
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() { _ = deaf.ElectLeader() })
	defer running.Wait()
	defer func() { _ = deaf.Resign() }()
	<-deaf.Status()
	d := h.follow("d", stubborn, "--grace", "10ms")
	late := h.command("transfer", "--to", "d", "--timeout", "1s")
	require.Equal(t, cmdline.NotLeft, late.exitCode())
	d.terminate()
}

// TestTransfer_FailsIfServersDoNotAnswer checks that the exit code of transfer distinguishes servers that do not
// answer from a candidate that does not take over.
func TestTransfer_FailsIfServersDoNotAnswer(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // this listener accepts connections and never answers
	require.NoError(t, err)
	defer func() { _ = silent.Close() }()
	addr := silent.Addr().String()
	for backend, flags := range map[string][]string{
		"zookeeper":  {"--zookeeper-servers", addr},
		"changefeed": {"--store", "redis://" + addr},
	} {
		p := start(t, append(flags, "transfer", "--backend", backend, "--election", "/jobs/one", "--to", "b", "--timeout", "2s")...)
		p.requireExit(cmdline.Failed, "no answer from "+backend+" at ")
	}
}

// TestTransfer_RejectsUnsupportedBackend checks that transfer rejects a backend without transfers, with an error that
// lists the backends that support them.
func TestTransfer_RejectsUnsupportedBackend(t *testing.T) {
	t.Parallel()
	p := start(t, "transfer", "--backend", "console", "--to", "b")
	require.Equal(t, cmdline.Usage, p.exitCode())
	p.waitForLog("of backend console, only of changefeed, etcd, raftlog, zookeeper")
}
