//go:build unix

package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestRun_Term fails if the commands and the program do not end in order after TERM, or if the next leader begins
// before.
func TestRun_Term(t *testing.T) {
	h := newZooKeeperHarness(t)
	end := []string{"--leader-end-command", `echo "$NAME end $ELECTOR_ROLE $ELECTOR_LEADER" >> "$FILE"`}
	begin := []string{"--leader-begin-command", `echo "$NAME begin" >> "$FILE"`}
	a := h.run("a", graceful, slices.Concat(begin, end)...)
	a.waitForOutput("started")
	b := h.run("b", graceful, begin...)
	b.waitForLog("follower")
	a.signal(syscall.SIGTERM)
	require.Equal(t, cmdline.OK, a.exitCode())
	b.waitForOutput("started")
	b.signal(syscall.SIGINT)
	require.Equal(t, cmdline.OK, b.exitCode())
	actions := slices.Compact(h.actions())
	require.Equal(t, []string{"a begin", "a", "a ends", "a end leader a", "b begin"}, actions[:5])
	require.Empty(t, h.srv.Sessions(), "a session was not closed")
}

// TestRun_ExitsAfterSecondSignal fails if a command is started between the signal that ends elector immediately and
// its exit.
func TestRun_ExitsAfterSecondSignal(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	s := &settings{log: slog.New(slog.DiscardHandler)}
	r := &runCommand{settings: s, grace: time.Minute, sessionTimeout: func() time.Duration { return time.Minute }}
	r.signals(nil).Exit(syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, r.runScript(ctx, "end", "echo >"+file, nil, os.Environ()), context.DeadlineExceeded)
	require.NoFileExists(t, file)
}

// TestRun_Killed fails if a killed leader is not replaced, or if its program continues to run.
func TestRun_Killed(t *testing.T) {
	t.Parallel()
	h := newZooKeeperHarness(t)
	a := h.run("a", stubborn)
	a.waitForOutput("works")
	b := h.run("b", stubborn, "--grace", "10ms")
	b.waitForLog("follower")
	a.signal(syscall.SIGKILL)
	require.Equal(t, -1, a.exitCode())
	b.waitForOutput("works")
	b.waitForOutput("works")
	b.signal(syscall.SIGTERM)
	require.Equal(t, cmdline.OK, b.exitCode())
	h.requireOrder("a", "b")
}

// TestRun_Stopped fails if the watchdog of a stopped leader does not stop the program when the lease expires.
func TestRun_Stopped(t *testing.T) {
	t.Parallel()
	h := newZooKeeperHarness(t)
	a := h.run("a", stubborn, "--grace", "10s")
	first := a.waitForOutput("started")
	a.waitForOutput("works")
	b := h.run("b", stubborn, "--grace", "10ms")
	b.waitForLog("follower")
	a.signal(syscall.SIGSTOP)
	second := b.waitForOutput("started")
	require.NotEqual(t, first, second, "the token is the same")
	b.waitForOutput("works")
	a.signal(syscall.SIGCONT)
	a.waitForLog("program exited")
	a.waitForLog("follower") // it has joined again
	b.signal(syscall.SIGTERM)
	require.Equal(t, cmdline.OK, b.exitCode())
	a.waitForOutput("started")
	a.waitForOutput("works")
	a.signal(syscall.SIGTERM)
	a.waitForLog("resigning")
	time.Sleep(1100 * time.Millisecond) // signals within a second count once
	a.signal(syscall.SIGTERM)           // the second signal does not wait for the grace
	require.Equal(t, 128+int(syscall.SIGTERM), a.exitCode())
	h.requireOrder("a", "b", "a")
}

// TestRun_NetworkPartition fails if the program continues to run after its lease has expired, although no other
// candidate can lead.
func TestRun_NetworkPartition(t *testing.T) {
	h := newZooKeeperHarness(t)
	a := h.run("a", graceful, "--leader-end-command", `echo "end $ELECTOR_ROLE"`)
	a.waitForOutput("started")
	h.srv.Blackhole(zktest.BothWays)
	require.Equal(t, "end follower", a.waitForOutput("end"))
	require.Equal(t, "a ends", h.actions()[len(h.actions())-1], "the program is still running")
	h.srv.Heal()
	a.waitForOutput("started")
	a.signal(syscall.SIGTERM)
	require.Equal(t, "end leader", a.waitForOutput("end"))
	require.Equal(t, cmdline.OK, a.exitCode())
}

// TestRun_ZooKeeperStartsLater fails if elector does not wait for its servers.
func TestRun_ZooKeeperStartsLater(t *testing.T) {
	t.Parallel()
	h := newZooKeeperHarness(t)
	h.srv.Stop()
	a := h.run("a", graceful)
	a.waitForLog("no ZooKeeper server has granted a session")
	h.srv.Restart(zktest.KeepTree)
	a.waitForOutput("started")
	a.signal(syscall.SIGTERM)
	require.Equal(t, cmdline.OK, a.exitCode())
}

// TestRun_ZooKeeperNeverStarts fails if elector does not exit after TERM while it waits for its servers.
func TestRun_ZooKeeperNeverStarts(t *testing.T) {
	h := newZooKeeperHarness(t)
	h.srv.Stop()
	a := h.run("a", graceful)
	a.waitForLog("no ZooKeeper server has granted a session")
	a.signal(syscall.SIGTERM)
	require.Equal(t, cmdline.OK, a.exitCode())
}

// TestRun_ProgramExits fails if signals do not reach the program, or if its exit code is not that of elector.
func TestRun_ProgramExits(t *testing.T) {
	h := newZooKeeperHarness(t)
	a := h.run("a", `trap 'echo received' HUP; trap 'exit 7' USR1; echo started; while :; do sleep 0.01; done`,
		"--leader-end-command", "echo ended")
	a.waitForOutput("started")
	a.signal(syscall.SIGHUP)
	a.waitForOutput("received")
	a.signal(syscall.SIGUSR1)
	a.waitForOutput("ended")
	require.Equal(t, 7, a.exitCode())
}

// TestRun_Environment fails if a command receives a wrong variable or a credential.
func TestRun_Environment(t *testing.T) {
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
	require.WithinRange(t, deadline, started, time.Now().Add(session))
	require.Equal(t, "END LEADER   QUOTED", a.waitForOutput("END"))
	require.Equal(t, cmdline.OK, a.exitCode())
}

// TestRun_StandardInput fails if the program does not receive the input, or if a command receives it.
func TestRun_StandardInput(t *testing.T) {
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
		a := startWithInput(t, in, nil, args...)
		require.Equal(t, c.want, a.waitForOutput("got"))
		require.Equal(t, cmdline.OK, a.exitCode())
		a.log.waitForEnd(t)
		require.Equal(t, "empty", a.log.text(), "elector has logged a message")
	}
	input.Close()
}

// TestRun_BeginHangs fails if a begin command that ignores its timeout is not killed, if no other candidate leads, or
// if the error command does not run.
func TestRun_BeginHangs(t *testing.T) {
	t.Parallel()
	h := newZooKeeperHarness(t)
	a := h.run("a", "", "--leader-begin-command", stubborn, "--begin-timeout", "5s", "--grace", "10ms",
		"--leader-error-command", `echo "error $ELECTOR_ROLE $ELECTOR_ERROR"`)
	a.waitForOutput("works")
	b := h.run("b", stubborn, "--grace", "10ms")
	require.Contains(t, a.waitForOutput("error error"), "did not return within BeginTimeout")
	b.waitForOutput("works")
	b.signal(syscall.SIGTERM)
	require.Equal(t, cmdline.OK, b.exitCode())
	a.signal(syscall.SIGTERM)
	require.Equal(t, cmdline.OK, a.exitCode())
	h.requireOrder("a", "b")
}

// TestRun_EndFails fails if the end command is not retried, or if the exit code is wrong.
func TestRun_EndFails(t *testing.T) {
	h := newZooKeeperHarness(t)
	a := h.run("a", "", "--leader-begin-command", "echo begun", "--leader-end-command", "echo ending; exit 1",
		"--end-tries", "2", "--end-pause", "10ms")
	a.waitForOutput("begun")
	a.signal(syscall.SIGTERM)
	a.waitForOutput("ending")
	a.waitForOutput("ending")
	require.Equal(t, cmdline.Unclean, a.exitCode())
	a.waitForLog("the work may still run")
}

// TestRun_ElectionEnds fails if elector does not stop its program and exit when the election is ended.
func TestRun_ElectionEnds(t *testing.T) {
	h := newZooKeeperHarness(t)
	a := h.run("a", graceful)
	a.waitForOutput("started")
	conn, _, err := h.srv.Connect(session)
	require.NoError(t, err)
	require.NoError(t, leaderelection.DeleteElection(conn, "/jobs/one"))
	require.Equal(t, cmdline.Permanent, a.exitCode())
	require.Equal(t, "a ends", strings.Join(h.actions()[len(h.actions())-1:], ""))
}
