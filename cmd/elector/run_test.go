//go:build unix

package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestRun_EndsInOrderAfterTERM checks that TERM ends first the program and then the end command of a leader, and that
// the next leader runs its begin command only afterwards.
func TestRun_EndsInOrderAfterTERM(t *testing.T) {
	h := newZooKeeperHarness(t)
	end := []string{"--leader-end-command", `echo "$NAME end $ELECTOR_ROLE $ELECTOR_LEADER" >> "$FILE"`}
	begin := []string{"--leader-begin-command", `echo "$NAME begin" >> "$FILE"`}
	a := h.lead("a", graceful, slices.Concat(begin, end)...)
	b := h.follow("b", graceful, begin...)
	a.terminate()
	b.waitForOutput("started")
	b.signal(syscall.SIGINT)
	require.Equal(t, cmdline.OK, b.exitCode())
	actions := slices.Compact(h.readActions())
	require.Equal(t, []string{"a begin", "a", "a ends", "a end leader a", "b begin"}, actions[:5])
	require.Empty(t, h.srv.Sessions(), "a session was not closed")
}

// TestRun_StartsNoCommandAfterSecondSignal checks that elector starts no command after the second signal, which makes
// elector exit immediately.
func TestRun_StartsNoCommandAfterSecondSignal(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	s := &settings{log: slog.New(slog.DiscardHandler)}
	r := &runCommand{settings: s, grace: time.Minute, sessionTimeout: func() time.Duration { return time.Minute }}
	r.signalReactions(nil).Exit(syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, r.runScript(ctx, "end", "echo >"+file, nil, os.Environ()), context.DeadlineExceeded)
	require.NoFileExists(t, file)
}

// TestRun_WatchdogEndsProgramOfSuspendedLeader checks that the watchdog of an elector that SIGSTOP has suspended ends
// the program when the lease expires.
func TestRun_WatchdogEndsProgramOfSuspendedLeader(t *testing.T) {
	t.Parallel()
	h := newZooKeeperHarness(t)
	a := h.run("a", stubborn, "--grace", "10s")
	first := a.waitForOutput("started")
	a.waitForOutput("works")
	b := h.follow("b", stubborn, "--grace", "10ms")
	a.signal(syscall.SIGSTOP)
	second := b.waitForOutput("started")
	require.NotEqual(t, first, second, "the token is the same")
	b.waitForOutput("works")
	a.signal(syscall.SIGCONT)
	a.waitForLog("program exited")
	a.waitForLog("follower") // the former leader has joined again
	b.terminate()
	a.waitForOutput("started")
	h.requireOrder("a", "b", "a")
}

// TestRun_EndsProgramIfNetworkIsPartitioned checks that elector ends its program when its lease expires during a
// partition of the network, even if no other candidate can lead.
func TestRun_EndsProgramIfNetworkIsPartitioned(t *testing.T) {
	h := newZooKeeperHarness(t)
	a := h.lead("a", graceful, "--leader-end-command", `echo "end $ELECTOR_ROLE"`)
	h.srv.Blackhole(zktest.BothWays)
	require.Equal(t, "end follower", a.waitForOutput("end"))
	require.Equal(t, "a ends", h.readActions()[len(h.readActions())-1], "the program is still running")
	h.srv.Heal()
	a.waitForOutput("started")
	a.signal(syscall.SIGTERM)
	require.Equal(t, "end leader", a.waitForOutput("end"))
	require.Equal(t, cmdline.OK, a.exitCode())
}

// TestRun_CommandsReceiveVariables checks that commands receive the documented environment variables, but no
// credentials.
func TestRun_CommandsReceiveVariables(t *testing.T) {
	h, started := newZooKeeperHarness(t), time.Now()
	t.Setenv("ELECTOR_START_COMMAND", `echo "begin $ELECTOR_ROLE $ELECTOR_LEADER $ELECTOR_ELECTION $ELECTOR_TOKEN."`)
	t.Setenv("ELECTOR_STOP_COMMAND", `echo "end $ELECTOR_ROLE" "  quoted" | tr a-z A-Z`)
	t.Setenv("ELECTOR_ZOOKEEPER_AUTH", "me:secret")
	t.Setenv("ELECTOR_DEADLINE", "inherited")
	a := h.run("a", `echo "program ${ELECTOR_ZOOKEEPER_AUTH-unset} $ELECTOR_INSTANCE_ID"; echo "until $ELECTOR_DEADLINE"`)
	require.Regexp(t, `^begin leader a /jobs/one [1-9][0-9]*\.$`, a.waitForOutput("begin"))
	require.Equal(t, "program unset a", a.waitForOutput("program"))
	until := a.waitForOutput("until ")[len("until "):]
	require.Regexp(t, `^[0-9T:-]+\.[0-9]{9}Z$`, until)
	deadline, err := time.Parse(time.RFC3339Nano, until)
	require.NoError(t, err)
	require.WithinRange(t, deadline, started, time.Now().Add(sessionTimeout))
	require.Equal(t, "END LEADER   QUOTED", a.waitForOutput("END"))
	require.Equal(t, cmdline.OK, a.exitCode())
}

// TestRun_ProgramReceivesStandardInput checks that the program receives the standard input of elector if --stdin is
// set, and that commands never receive the standard input.
func TestRun_ProgramReceivesStandardInput(t *testing.T) {
	t.Parallel()
	h := newZooKeeperHarness(t)
	in, input, err := os.Pipe()
	require.NoError(t, err)
	defer in.Close()
	for _, c := range []struct {
		want string
		args []string
	}{{"got one", []string{"--stdin"}}, {"got ", nil}} {
		_, err = input.WriteString("one\n")
		require.NoError(t, err)
		args := slices.Concat([]string{"run", "--zookeeper-servers", h.addr, "--quiet", "--leader-begin-command", "cat; echo empty >&2"},
			c.args, []string{"--", "/bin/sh", "-c", `read line; echo "got $line"`})
		a := startWithInput(t, in, args...)
		require.Equal(t, c.want, a.waitForOutput("got"))
		require.Equal(t, cmdline.OK, a.exitCode())
		a.log.WaitForEnd(t, patience)
		require.Equal(t, "empty", a.log.Text(), "elector has logged a message")
	}
	input.Close()
}

// TestRun_KillsBeginCommandAtTimeout checks that elector kills a begin command that ignores its timeout, runs the
// error command, and lets another candidate lead.
func TestRun_KillsBeginCommandAtTimeout(t *testing.T) {
	t.Parallel()
	h := newZooKeeperHarness(t)
	a := h.run("a", "", "--leader-begin-command", stubborn, "--begin-timeout", "5s", "--grace", "10ms",
		"--leader-error-command", `echo "error $ELECTOR_ROLE $ELECTOR_ERROR"`)
	a.waitForOutput("works")
	b := h.run("b", stubborn, "--grace", "10ms")
	require.Contains(t, a.waitForOutput("error error"), "did not return within BeginTimeout")
	b.waitForOutput("works")
	b.terminate()
	a.terminate()
	h.requireOrder("a", "b")
}

// TestRun_RetriesEndCommand checks that elector retries an end command that fails, and reports with its exit code
// that the work may still run.
func TestRun_RetriesEndCommand(t *testing.T) {
	h := newZooKeeperHarness(t)
	a := h.run("a", "", "--leader-begin-command", "echo begun", "--leader-end-command", "echo ending; exit 1",
		"--end-tries", "2", "--end-pause", "10ms")
	a.waitForOutput("begun")
	a.signal(syscall.SIGTERM)
	a.waitForOutput("ending")
	a.waitForOutput("ending")
	a.requireExit(cmdline.Unclean, "the work may still run")
}
