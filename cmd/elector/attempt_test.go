//go:build unix

package main

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/elector"
)

// TestRun_ExitsAfterTryOrTimeoutIfNotElected checks that elector run exits with --try if another candidate is ahead,
// and with --timeout if it is not elected in time, and that neither flag ends the run of a leader.
func TestRun_ExitsAfterTryOrTimeoutIfNotElected(t *testing.T) {
	t.Parallel()
	h := newZooKeeperHarness(t)
	commands := []string{"--leader-begin-command", "echo begins", "--leader-end-command", "echo ends"}
	a := h.lead("a", graceful, "--try", "--timeout", "10m")

	try := h.run("try", "echo runs", append(commands, "--try")...)
	timeout := h.run("timeout", "echo runs", append(commands, "--timeout", "300ms")...)
	try.requireExit(cmdline.NoLeader, "elector: not elected: another candidate is ahead: /jobs/one/")
	timeout.requireExit(cmdline.NoLeader, "elector: not elected: the timeout of 300ms has elapsed")
	require.Empty(t, try.output.Text())
	require.Empty(t, timeout.output.Text())

	a.terminate()
	last := h.run("last", "echo runs; exit 7", "--try")
	last.waitForOutput("runs")
	require.Equal(t, 7, last.exitCode())

	h.srv.Stop()
	disconnected := h.run("disconnected", "echo runs", "--timeout", "300ms", "--try")
	disconnected.requireExit(cmdline.NoLeader, "has elapsed: no session on zookeeper")
}

// TestAttempt_FailsAtMostOnce checks that an attempt to become leader fails at most once, and cannot fail after it
// has succeeded.
func TestAttempt_FailsAtMostOnce(t *testing.T) {
	cancelled := 0
	r := &runCommand{}
	r.attempt.cancel = func() { cancelled++ }
	r.giveUpIfNotElected(elector.Report{Candidate: leaderelection.Status{CandidateID: "a"}})
	require.NoError(t, r.attempt.failure(), "a candidate without a known predecessor can be elected")
	failure := errors.New("connection lost")
	r.giveUpIfNotElected(elector.Report{State: elector.StateError, Err: failure})
	require.ErrorIs(t, r.attempt.failure(), failure)
	require.Equal(t, cmdline.Failed, exitCode(r.attempt.failure()))
	r.giveUpIfNotElected(elector.Report{Candidate: leaderelection.Status{NowFollowing: "b"}})
	require.ErrorIs(t, r.attempt.failure(), failure)
	require.ErrorIs(t, r.attempt.markSucceeded(), failure, "a leadership begins after the attempt has failed")
	require.Equal(t, 1, cancelled)

	r = &runCommand{}
	require.NoError(t, r.attempt.markSucceeded())
	r.giveUpIfNotElected(elector.Report{Candidate: leaderelection.Status{NowFollowing: "b"}})
	require.NoError(t, r.attempt.failure(), "the first leadership has begun")
	require.NoError(t, r.attempt.markSucceeded())
}
