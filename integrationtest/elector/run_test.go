//go:build linux

package elector

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
)

// startLeaderAndFollower starts two electors, each with a program and additional arguments: a, which leads, and b, which follows.
func (el *election) startLeaderAndFollower(a, b []string) (*elector, *elector) {
	el.t.Helper()
	leader := el.start(buildWithRace(el.t), "a", slices.Concat(a, program)...)
	el.waitEvent("a", eventWork, 1)
	follower := el.start(buildWithRace(el.t), "b", slices.Concat(b, program)...)
	follower.waitLog("follower")
	return leader, follower
}

// withShortSession contains the arguments that give an elector a short session, for tests that wait for the expiry of
// a session or a lease, and for benchmarks that depend on the timeout.
var withShortSession = []string{"--session-timeout", shortTimeout.String()}

// TestRun_KillsProgramThatIgnoresTERM checks that elector kills a program that ignores SIGTERM, and that the next
// leader does not start its program before that.
func TestRun_KillsProgramThatIgnoresTERM(t *testing.T) {
	el := newElection(t)
	a, b := el.startLeaderAndFollower([]string{stubborn, "--grace", "200ms"}, nil)
	a.terminate()
	el.waitEvent("b", eventWork, 1)
	b.terminate()
	require.Equal(t, []string{"a", "b"}, el.order())
}

// TestRun_EndsProgramOfKilledElector checks that the program of an elector that was killed ends before the lease
// expires, even if the program ignores SIGTERM, and does not run at the same time as the program of the next leader.
func TestRun_EndsProgramOfKilledElector(t *testing.T) {
	el := newElection(t)
	longer := []string{"--session-timeout", (20 * tick).String()}
	a, b := el.startLeaderAndFollower(append(longer, stubborn, "--grace", "100ms", "--listen", "127.0.0.1:0"), longer)
	_, text := a.getPage("/leader")()
	var leader struct{ Deadline time.Time }
	require.NoError(t, json.Unmarshal([]byte(text), &leader))
	a.sendSignal(syscall.SIGKILL)
	require.Equal(t, -1, a.waitExit())
	el.waitEvent("b", eventWork, 1)
	b.terminate()
	require.Equal(t, []string{"a", "b"}, el.order())
	for _, e := range el.events() {
		if e.id == "a" {
			require.Less(t, e.time, leader.Deadline.UnixNano(), "the program has run until the lease expired")
		}
	}
}

// TestRun_EndsProgramOfPausedElector checks that the program of an elector that SIGSTOP has suspended does not run
// while another elector leads, and that the suspended elector follows the new leader after SIGCONT.
func TestRun_EndsProgramOfPausedElector(t *testing.T) {
	el := newElection(t)
	a, b := el.startLeaderAndFollower(slices.Concat(withShortSession, []string{stubborn, "--grace", "1m", "--listen", "127.0.0.1:0"}), withShortSession)
	isLeader := a.getPage("/leader")
	require.Equal(t, http.StatusOK, statusCode(isLeader()))
	a.sendSignal(syscall.SIGSTOP)
	el.waitEvent("b", eventWork, 1)
	a.sendSignal(syscall.SIGCONT)
	require.Equal(t, http.StatusServiceUnavailable, statusCode(isLeader()), "the first answer after the pause")
	a.waitLog("program exited")
	a.waitLog("follower")
	b.terminate()
	el.waitEvent("a", eventBegin, 2)
	require.Equal(t, http.StatusOK, statusCode(isLeader()))
	a.sendSignal(syscall.SIGKILL)
	a.waitExit()
	require.Equal(t, []string{"a", "b", "a"}, el.order())
}

// TestRun_EndsProgramOfElectorWithoutNetwork checks that the program of an elector that has lost its network does not
// run while another elector leads, and that only the other elector reports on /leader that it leads.
func TestRun_EndsProgramOfElectorWithoutNetwork(t *testing.T) {
	el := newElection(t)
	a, b := el.startLeaderAndFollower(slices.Concat(withShortSession, []string{stubborn, "--grace", "1m", "--listen", "127.0.0.1:0", "--leader-end-command", "echo ended $ELECTOR_ROLE"}),
		slices.Concat(withShortSession, []string{"--listen", "127.0.0.1:0"}))
	b.read = 0
	aIsLeader, bIsLeader := a.getPage("/leader"), b.getPage("/leader")
	a.network.Freeze()
	start := time.Now()
	for statusCode(bIsLeader()) != http.StatusOK {
		require.Less(t, time.Since(start), testenv.WaitLimit, "there is no leader")
	}
	require.Equal(t, http.StatusServiceUnavailable, statusCode(aIsLeader()))
	el.waitEvent("b", eventBegin, 1)
	a.waitLog("ended follower")
	a.network.Restore()
	a.waitLog("follower")
	b.terminate()
	el.waitEvent("a", eventBegin, 2)
	a.sendSignal(syscall.SIGKILL)
	a.waitExit()
	require.Equal(t, []string{"a", "b", "a"}, el.order())
}

// TestRun_StartsNoProgramWhileEndCommandFails checks that no other elector starts its program while the former leader
// retries its end command, and that the exit code of the former leader reports the failure.
func TestRun_StartsNoProgramWhileEndCommandFails(t *testing.T) {
	el := newElection(t)
	appendEvent := func(event string) string {
		return `echo "$ELECTOR_INSTANCE_ID ` + event + ` $$ $(date +%s%N)" >> "$` + lockFileVariable + `"`
	}
	a, b := el.startLeaderAndFollower([]string{"--end-tries", "3", "--end-pause", "300ms", "--leader-end-command", appendEvent("fails") + "; exit 1"},
		[]string{"--leader-begin-command", appendEvent("begun")})
	a.sendSignal(syscall.SIGTERM)
	require.Equal(t, 3, a.waitExit())
	a.waitLog("the work may still run")
	el.waitEvent("b", eventWork, 1)
	b.terminate()
	var after []string
	for _, e := range el.events() {
		if e.event != eventWork {
			after = append(after, e.id+" "+e.event)
		}
	}
	require.Equal(t, []string{"a begin", "a end", "a fails", "a fails", "a fails", "b begun", "b begin", "b end"}, after)
}

// TestRun_WaitsForServersThatStartLater checks that an elector that is started before the servers waits for them, and
// then leads.
func TestRun_WaitsForServersThatStartLater(t *testing.T) {
	for i := range servers.Servers() {
		require.NoError(t, servers.Kill(i))
	}
	el := newElection(t)
	a := el.newElector(buildWithRace(t), "a", slices.Concat([]string{"--listen", "127.0.0.1:0"}, program)...)
	a.start()
	ready := a.getPage("/readyz")
	a.waitLog("no ZooKeeper server has granted a session")
	require.Equal(t, http.StatusServiceUnavailable, statusCode(ready()))
	// A server of ZooKeeper 3.8 never answers a client that connects before it has loaded its data.
	a.network.Cut()
	for i := range servers.Servers() {
		require.NoError(t, servers.Start(i))
	}
	ensemble.WaitReady(t, servers)
	a.network.Restore()
	el.waitEvent("a", eventWork, 1)
	require.Equal(t, http.StatusOK, statusCode(ready()))
	a.terminate()
	require.NotContains(t, a.readLog(), "level=ERROR", strings.Join(a.cmd.Args, " "))
}
