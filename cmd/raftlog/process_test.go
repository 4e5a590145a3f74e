//go:build linux

package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// leadership says whether the leadership of the log changes in an event, and how.
type leadership int

const (
	kept        leadership = iota
	transferred            // the leader transfers its leadership
	lost                   // another voter is elected after the election timeout
)

// processEvent is a row of the table of events in docs/raftlog.md. The event happens to the leader.
type processEvent struct {
	voters     []string
	timeout    string              // the election timeout; empty means 1s
	prepare    func(cmd *exec.Cmd) // changes the command of each peer before the start; may be nil
	act        func(e *eventTest)  // causes the event, after a leader was elected
	leadership leadership
	exits      bool // the leader exits, with the exit code in the field code
	code       int
}

// eventTest is a test of an event. The embedded process is the leader of the log, to which the event happens.
type eventTest struct {
	*process
	h       *harness
	id      string
	prepare func(cmd *exec.Cmd)
}

func (e *eventTest) signal(signals ...syscall.Signal) {
	e.h.t.Helper()
	for _, s := range signals {
		require.NoError(e.h.t, e.cmd.Process.Signal(s))
	}
}

// start starts a peer with a command that the field prepare has changed.
func (e *eventTest) start(id string) {
	e.h.peers[id] = e.h.startPrepared(e.prepare, "serve", "--peer-id", id)
}

// otherVoters returns the IDs of the voters that are not the leader.
func (e *eventTest) otherVoters() (all []string) {
	for id := range e.h.peers {
		if id != e.id {
			all = append(all, id)
		}
	}
	return all
}

// processEvents returns the rows of the table of events in docs/raftlog.md, by the names of the events.
func processEvents(t *testing.T) map[string][]processEvent {
	one, three := []string{"a"}, []string{"a", "b", "c"}
	// ignored sends signals that a peer must ignore. The sleep gives a peer that does not ignore them
	// time to stop.
	ignored := func(signals ...syscall.Signal) func(*eventTest) {
		return func(e *eventTest) {
			e.signal(signals...)
			time.Sleep(100 * time.Millisecond)
		}
	}
	replace := func(e *eventTest) {
		follower := e.otherVoters()[0]
		e.h.killPeers(follower)
		e.start(follower)
		e.signal(syscall.SIGKILL) // the remaining majority needs the peer that was restarted
	}
	// together sends two signals while SIGSTOP suspends the peer, so that the peer receives both at the same
	// time.
	together := func(sig syscall.Signal) func(*eventTest) {
		return func(e *eventTest) { e.signal(syscall.SIGSTOP, sig, syscall.SIGTERM, syscall.SIGCONT) }
	}
	return map[string][]processEvent{
		"TERM, INT, HUP or QUIT": {
			{voters: three, act: func(e *eventTest) { e.signal(syscall.SIGTERM) }, leadership: transferred, exits: true},
			{voters: one, act: func(e *eventTest) { e.signal(syscall.SIGINT) }, exits: true},
		},
		"the same, repeated within a second": {
			{voters: one, act: together(syscall.SIGHUP), exits: true},
			{voters: one, act: together(syscall.SIGQUIT), exits: true},
		},
		"the same, repeated later while the peer stops": {{voters: three, timeout: "3s", act: func(e *eventTest) {
			for _, id := range e.otherVoters() { // suspend the other voters, so that the leader cannot transfer its leadership
				require.NoError(t, testenv.PauseProcess(e.h.peers[id].cmd.Process))
			}
			e.signal(syscall.SIGTERM)
			e.waitForLine(t, "msg=stopping")
			time.Sleep(1100 * time.Millisecond)
			e.signal(syscall.SIGQUIT)
			require.Equal(t, 128+int(syscall.SIGQUIT), e.stop(t, 0))
			for _, id := range e.otherVoters() {
				require.NoError(t, testenv.ResumeProcess(e.h.peers[id].cmd.Process))
			}
		}, leadership: lost, exits: true, code: 128 + int(syscall.SIGQUIT)}},
		"HUP or INT, ignored at the start (`nohup`)": {{
			voters: one, prepare: testenv.Ignoring("HUP INT"), act: ignored(syscall.SIGHUP, syscall.SIGINT),
		}},
		"USR1, USR2 or WINCH": {{voters: one, act: ignored(syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH)}},
		"the reader of the log stops reading": {
			{voters: one, prepare: testenv.LogTo(t, true), act: func(*eventTest) {}},
			{voters: three, prepare: testenv.LogTo(t, true), act: replace, leadership: lost, exits: true, code: -1},
		},
		"the reader of the log exits": {
			{voters: one, prepare: testenv.LogTo(t, false), act: func(*eventTest) {}},
			{voters: three, prepare: testenv.LogTo(t, false), act: replace, leadership: lost, exits: true, code: -1},
		},
		"raftlog is PID 1, and orphans exit": {{voters: one, prepare: func(cmd *exec.Cmd) {
			testenv.ThroughShell(`for i in 1 2 3; do sleep 0.01 & done; exec "$@"`)(cmd)
			testenv.AsPID1(cmd)
		}, act: func(e *eventTest) {
			require.Eventually(t, func() bool { return len(testenv.Children(t, e.cmd.Process.Pid)) == 0 }, timeLimit, 10*time.Millisecond, "zombies remain")
		}}},
		"KILL": {{voters: three, act: func(e *eventTest) { e.signal(syscall.SIGKILL) }, leadership: lost, exits: true, code: -1}},
		"STOP, and later CONT": {{voters: three, act: func(e *eventTest) {
			e.signal(syscall.SIGSTOP)
			e.requireOtherLeader()
			e.signal(syscall.SIGCONT)
		}, leadership: lost}},
	}
}

// requireOtherLeader waits until another peer leads the log.
func (e *eventTest) requireOtherLeader() {
	e.h.t.Helper()
	require.Eventually(e.h.t, func() bool { return e.h.waitForLeader().Leader.ID != e.id }, timeLimit, 10*time.Millisecond)
}

// TestServe_EventsHaveDocumentedEffects checks that each event has the effect that the table in
// docs/raftlog.md describes, and that the table and the test have the same rows.
func TestServe_EventsHaveDocumentedEffects(t *testing.T) {
	testenv.RunEvents(t, "../../docs/raftlog.md", "| event | peer | leadership of the log |", processEvents, testProcessEvent)
}

func testProcessEvent(t *testing.T, row processEvent) {
	h := newHarness(t, row.voters...)
	if row.timeout != "" {
		text, err := os.ReadFile(h.file)
		require.NoError(t, err)
		changed := strings.Replace(string(text), "election-timeout: 1s", "election-timeout: "+row.timeout, 1)
		require.NoError(t, os.WriteFile(h.file, []byte(changed), 0o600))
	}
	e := &eventTest{h: h, prepare: row.prepare}
	for _, id := range row.voters {
		e.start(id)
	}
	e.id = h.waitForLeader().Leader.ID
	e.process = h.peers[e.id]
	row.act(e)
	if row.exits && !e.hasExited() {
		require.Equal(t, row.code, e.stop(t, 0))
	}
	if row.leadership == kept && row.exits {
		return // there is no other leader, because the only voter has exited
	}
	if row.leadership != kept {
		e.requireOtherLeader()
	}
	h.proposeUpdate("after the event")
	h.requireLog("tail", "--once")
	if row.leadership == transferred {
		announced := strings.Contains(h.requireOutput("tail", "--once", "--format", "json"), `"kind":"CONTROL"`)
		require.True(t, announced, "the log has no entry that announces a transfer")
	}
	for _, p := range h.peers {
		if !p.hasExited() {
			require.Zero(t, p.stop(t, syscall.SIGTERM))
		}
	}
}
