//go:build unix

package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// TestResign_LeaderJoinsAgain checks that a leader that the command resign requests to resign stops its program
// before the next leader starts one, and joins again behind the next leader, and that resign --id selects a candidate
// by its name, but not by an ID from before it has joined again.
func TestResign_LeaderJoinsAgain(t *testing.T) {
	h := newZooKeeperHarness(t)
	none := h.command("resign")
	require.Equal(t, cmdline.NoLeader, none.exitCode(), "the election does not exist")

	end := []string{"--leader-end-command", `sleep 0.2; echo "$NAME end $ELECTOR_ROLE" >> "$FILE"`}
	const program = `trap 'echo "$NAME ends" >> "$FILE"; exit 0' TERM; echo "$NAME" >> "$FILE"; echo started; while :; do sleep 0.01; done`
	a := h.run("a", program, end...)
	a.waitForOutput("started")
	b := h.run("b", program, end...)
	b.waitForLog("follower")
	resign := h.command("resign")
	require.Regexp(t, `^a has handed over; b leads, token [1-9][0-9]*$`, resign.waitForOutput("a has"))
	require.Equal(t, cmdline.OK, resign.exitCode())
	b.waitForOutput("started")
	a.waitForLog("follower") // the candidate has joined the election again
	require.Equal(t, []string{"a", "a ends", "a end leader", "b"}, h.readActions())

	// The name of a candidate, unlike its ID, does not change when the candidate joins again.
	status := h.command("status")
	fields := strings.Fields(status.waitForOutput("follower"))
	require.Equal(t, cmdline.OK, status.exitCode())
	require.Equal(t, "a", fields[1])
	id := fields[len(fields)-1]
	for _, name := range []string{"a", id, id[strings.LastIndex(id, "/")+1:]} {
		resign = h.command("step-down", "--id", name)
		if name == "a" {
			require.Regexp(t, `^a has left its position; b leads, token [1-9][0-9]*$`, resign.waitForOutput("a has"))
			require.Equal(t, cmdline.OK, resign.exitCode())
			continue
		}
		require.Equal(t, cmdline.NoLeader, resign.exitCode(), "the candidate has another ID now")
		resign.waitForLog("is not a candidate in /jobs/one")
	}

	b.terminate()
	a.waitForOutput("started")
	resign = h.command("resign")
	require.Regexp(t, `^a has handed over; it leads again, token [1-9][0-9]*: no other candidate was waiting$`, resign.waitForOutput("a has"))
	require.Equal(t, cmdline.OK, resign.exitCode())
	a.waitForOutput("started")
	a.terminate()
	h.command("resign").requireExit(cmdline.NoLeader, "there are no candidates in /jobs/one")
}

// TestResign_ReturnsAtTimeoutWhileLeaderHandsOver checks that the command resign returns at its timeout, and that the
// leader continues to hand over afterwards.
func TestResign_ReturnsAtTimeoutWhileLeaderHandsOver(t *testing.T) {
	t.Parallel()
	h := newZooKeeperHarness(t)
	a := h.lead("a", graceful, "--leader-end-command", `echo ending; while [ ! -e "$FILE.done" ]; do sleep 0.02; done`)
	resign := h.command("resign", "--timeout", "3s")
	a.waitForOutput("ending")
	resign.requireExit(cmdline.NotLeft, "a was requested to resign and has not left")
	createFile(t, h.file+".done")
	a.waitForOutput("started") // the next leader is a again, after its hand-over was completed
	a.terminate()
}

// TestResign_RejectsAmbiguousName checks that resign --id rejects a name that two candidates have.
func TestResign_RejectsAmbiguousName(t *testing.T) {
	h := newZooKeeperHarness(t)
	h.lead("twin", graceful)
	h.follow("twin", graceful)
	resign := h.command("resign", "--id", "twin")
	resign.requireExit(cmdline.Usage, "2 candidates have that name")
}

// TestResign_SignalWithdrawsRequest checks that the command resign withdraws its request and exits when it receives
// TERM.
func TestResign_SignalWithdrawsRequest(t *testing.T) {
	h := newZooKeeperHarness(t)
	a := h.lead("a", graceful, "--leader-end-command", `echo ending; sleep 100`, "--end-timeout", "1m", "--grace", "10ms")
	resign := h.command("resign")
	a.waitForOutput("ending")
	signalled := time.Now()
	resign.signal(syscall.SIGTERM)
	require.Equal(t, cmdline.NotLeft, resign.exitCode())
	require.Less(t, time.Since(signalled), patience)
	conn, _, err := h.srv.Connect(sessionTimeout)
	require.NoError(t, err)
	data, _, err := conn.Get("/jobs/one")
	require.NoError(t, err)
	require.Empty(t, data, "the request was not withdrawn")
}
