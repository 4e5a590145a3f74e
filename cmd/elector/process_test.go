//go:build linux

package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// The programs of TestProcess_EventsHaveDocumentedEffects. Like the end command of that test, they append their
// actions to FILE. They do not use standard error, on which a shell would report that a signal has terminated its
// child.
const (
	obedient = `exec 2>/dev/null; trap 'echo TERM >> "$FILE"; exit 0' TERM; trap 'echo HUP >> "$FILE"' HUP; trap 'echo USR1 >> "$FILE"' USR1
		echo started; while :; do sleep 0.01; done`
	disobedient = `exec 2>/dev/null; trap 'echo TERM >> "$FILE"' TERM; echo started; while :; do sleep 0.01; done`
	// brokenPipe is a program that prints with which exit code a process ends whose output has no reader.
	brokenPipe = `sh -c 'kill -PIPE $$'; echo "exit code $?" >> "$FILE"; ` + obedient
	// orphaning is a program that leaves processes behind whose parent has exited.
	orphaning = `for i in 1 2 3 4 5; do (sleep 0.01 &); done; ` + obedient
)

// processEvent describes the test of one row of the table of events in docs/elector.md.
type processEvent struct {
	program string              // empty if there is only a begin command
	prepare func(cmd *exec.Cmd) // changes the elector's command before the start; may be nil
	act     func(e *eventTest)  // causes the event after the program or the begin command has started
	actions []string            // the expected actions of the program and the end command
	code    int
	flags   []string // additional flags of run
}

// eventTest is an elector for which a test causes an event.
type eventTest struct {
	*process
	h *harness
}

// waitForAction waits until the program or the end command has appended the given line to the file of actions.
func (e *eventTest) waitForAction(line string) {
	e.t.Helper()
	require.Eventually(e.t, func() bool {
		text, _ := os.ReadFile(e.h.file)
		return slices.Contains(strings.Split(string(text), "\n"), line)
	}, patience, 10*time.Millisecond, line)
}

// requireNoZombies waits until at most one child of a process remains, so that children that have exited are not
// zombies.
func (e *eventTest) requireNoZombies(parent int) {
	e.t.Helper()
	require.Eventually(e.t, func() bool { return len(testenv.Children(e.t, parent)) <= 1 }, patience, 10*time.Millisecond)
}

// processEvents returns the tests for each row of the table of events.
func processEvents(t *testing.T) map[string][]processEvent {
	send := func(signals ...syscall.Signal) func(*eventTest) {
		return func(e *eventTest) {
			for _, s := range signals {
				e.signal(s)
			}
		}
	}
	return map[string][]processEvent{
		"TERM or INT": {
			{program: obedient, act: send(syscall.SIGTERM), actions: []string{"TERM", "end leader"}},
			{program: obedient, act: send(syscall.SIGINT), actions: []string{"TERM", "end leader"}},
			{act: send(syscall.SIGTERM), actions: []string{"end leader"}},
		},
		"TERM or INT, repeated within a second": {
			// Signals that are sent while SIGSTOP suspends elector arrive together after SIGCONT.
			{program: disobedient, act: send(syscall.SIGSTOP, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCONT), actions: []string{"TERM", "end leader"}},
		},
		"TERM or INT, repeated later": {{program: disobedient, act: func(e *eventTest) {
			e.signal(syscall.SIGTERM)
			e.waitForAction("TERM")
			time.Sleep(1100 * time.Millisecond)
			e.signal(syscall.SIGINT)
		}, actions: []string{"TERM"}, code: 128 + int(syscall.SIGINT)}},
		"HUP or QUIT, with a program": {{program: obedient, act: func(e *eventTest) {
			e.signal(syscall.SIGHUP)
			e.waitForAction("HUP")
			e.signal(syscall.SIGTERM)
		}, actions: []string{"HUP", "TERM", "end leader"}}},
		"HUP or QUIT, without a program": {
			{act: send(syscall.SIGHUP), actions: []string{"end leader"}},
			{act: send(syscall.SIGQUIT), actions: []string{"end leader"}},
		},
		"USR1, USR2 or WINCH": {
			{program: obedient, act: func(e *eventTest) {
				e.signal(syscall.SIGUSR1)
				e.waitForAction("USR1")
				e.signal(syscall.SIGTERM)
			}, actions: []string{"USR1", "TERM", "end leader"}},
			{act: send(syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGTERM), actions: []string{"end leader"}},
		},
		"HUP or INT, ignored at the start (`nohup`)": {
			{program: `kill -HUP $$; kill -INT $$; ` + obedient, prepare: testenv.Ignoring("HUP INT"), act: func(e *eventTest) {
				send(syscall.SIGHUP, syscall.SIGINT, syscall.SIGUSR1)(e)
				e.waitForAction("USR1")
				e.signal(syscall.SIGTERM)
			}, actions: []string{"USR1", "TERM", "end leader"}},
			{prepare: testenv.Ignoring("HUP INT"), act: send(syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM), actions: []string{"end leader"}},
		},
		"the reader of the log stops reading": {
			{program: obedient, prepare: testenv.LogTo(t, true), act: send(syscall.SIGTERM), actions: []string{"TERM", "end leader"}},
			{program: "echo started; exit 7", prepare: testenv.LogTo(t, true), act: send(), actions: []string{"end leader"}, code: 7},
			{program: disobedient, prepare: testenv.LogTo(t, true), act: func(e *eventTest) {
				e.signal(syscall.SIGTERM)
				e.waitForAction("TERM")
				time.Sleep(1100 * time.Millisecond)
				e.signal(syscall.SIGTERM)
			}, actions: []string{"TERM"}, code: 128 + int(syscall.SIGTERM)},
		},
		"the reader of the log exits": {
			{program: brokenPipe, prepare: testenv.LogTo(t, false), act: send(syscall.SIGTERM), actions: []string{"exit code 141", "TERM", "end leader"}},
			{program: "echo started; exit 7", prepare: testenv.LogTo(t, false), act: send(), actions: []string{"end leader"}, code: 7},
		},
		"clients open more connections to `--listen` than elector has descriptors": {{
			program: obedient, flags: listening,
			prepare: testenv.ThroughShell(`ulimit -n 64; exec "$@"`), act: func(e *eventTest) {
				page := e.webClient()
				for range 200 {
					conn, err := net.Dial("tcp", strings.TrimPrefix(page.base, "http://"))
					require.NoError(e.t, err)
					defer conn.Close()
				}
				page.requirePage("/leader", 200, `"leads":true`) // the limit is reached, so this connection closes an idle one
				e.signal(syscall.SIGTERM)
				e.waitForAction("end leader")
				require.NotContains(e.t, e.log.Text(), "too many open files")
			}, actions: []string{"TERM", "end leader"},
		}},
		"elector was started with other open descriptors": {{
			program: `echo inherited >&9; ` + obedient,
			prepare: testenv.ThroughShell(`exec 9>>"$FILE"; exec "$@"`), act: func(e *eventTest) { e.signal(syscall.SIGTERM) },
			actions: []string{"inherited", "TERM", "end leader"},
		}},
		"the program exits": {{program: "echo started; exit 7", act: send(), actions: []string{"end leader"}, code: 7}},
		"orphans of the program exit": {{program: orphaning, act: func(e *eventTest) {
			require.Len(e.t, testenv.Children(e.t, e.cmd.Process.Pid), 1)
			for _, watchdog := range testenv.Children(e.t, e.cmd.Process.Pid) {
				var pid int
				_, err := fmt.Sscan(watchdog, &pid)
				require.NoError(e.t, err)
				e.requireNoZombies(pid)
			}
			e.signal(syscall.SIGTERM)
		}, actions: []string{"TERM", "end leader"}}},
		"elector is PID 1, and orphans exit": {{prepare: testenv.AsPID1, act: func(e *eventTest) {
			e.requireNoZombies(e.cmd.Process.Pid)
			e.signal(syscall.SIGTERM)
		}, actions: []string{"end leader"}}},
		"KILL": {{program: obedient, act: func(e *eventTest) {
			e.signal(syscall.SIGKILL)
			e.waitForAction("TERM")
		}, actions: []string{"TERM"}, code: -1}},
		"STOP, and later CONT": {{program: obedient, flags: []string{"--session-timeout", sessionTimeout.String()}, act: func(e *eventTest) {
			e.signal(syscall.SIGSTOP)
			e.waitForAction("TERM")
			e.signal(syscall.SIGCONT)
			e.waitForAction("end follower")
			e.waitForOutput("started")
			e.signal(syscall.SIGTERM)
		}, actions: []string{"TERM", "end follower", "TERM", "end leader"}}},
	}
}

// TestProcess_EventsHaveDocumentedEffects checks that each event, such as a signal, has the effect that the table in
// docs/elector.md describes, and that each row of the table is tested.
func TestProcess_EventsHaveDocumentedEffects(t *testing.T) {
	testenv.RunEvents(t, "../../docs/elector.md", "| event | program | leadership |", processEvents, testProcessEvent)
}

func testProcessEvent(t *testing.T, row processEvent) {
	h := newZooKeeperHarness(t)
	begin := `echo started; for i in 1 2 3 4 5; do sleep 0.01 >/dev/null 2>&1 & done`
	if row.program != "" {
		begin = ""
	}
	grace := "2s"
	if row.code > 128 {
		grace = "1h" // the second signal must arrive before the end of the grace
	}
	// The session timeout is long, so that the lease does not expire while a busy machine delays
	// elector or the watchdog.
	flags := append([]string{"--session-timeout", "40s"}, row.flags...)
	cmd := h.runCommand("a", row.program, append(flags, "--leader-begin-command", begin, "--grace", grace,
		"--leader-end-command", `echo "end $ELECTOR_ROLE" >> "$FILE"`)...)
	if row.prepare != nil {
		row.prepare(cmd)
	}
	e := &eventTest{startCommand(t, cmd), h}
	e.waitForOutput("started")
	row.act(e)
	require.Equal(t, row.code, e.exitCode())
	require.Equal(t, row.actions, slices.Compact(h.readActions()))
	if row.code != -1 && row.code < 128 {
		require.Equal(t, cmdline.NoLeader, h.command("status").exitCode(), "the leadership was not handed over")
	}
}

// TestRun_ReservesDescriptors checks that elector run reserves file descriptors for the start of commands even
// without --listen.
func TestRun_ReservesDescriptors(t *testing.T) {
	p := newZooKeeperHarness(t).run("a", graceful)
	p.waitForOutput("started")
	dir := fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid)
	descriptors, err := os.ReadDir(dir)
	require.NoError(t, err)
	unused := 0
	for _, d := range descriptors {
		if target, _ := os.Readlink(filepath.Join(dir, d.Name())); target == os.DevNull {
			unused++
		}
	}
	require.GreaterOrEqual(t, unused, 16)
}
