//go:build linux

package elector

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// two starts two electors, of which a leads and b follows, each with a program.
func (e *election) two(a, b []string) (*elector, *elector) {
	e.TB.Helper()
	leader := e.run(checked(e), "a", slices.Concat(a, program)...)
	e.does("a", works, 1)
	follower := e.run(checked(e), "b", slices.Concat(b, program)...)
	follower.says("follower")
	return leader, follower
}

// expiring are the arguments of electors with short sessions: in tests that let a session or a
// lease expire, and where figures depend on the timeout.
var expiring = []string{"--session-timeout", shortTimeout.String()}

func TestTerm(t *testing.T) {
	e := newElection(t)
	a, b := e.two([]string{"--leader-end-command", "echo ended $ELECTOR_ROLE"}, nil)
	a.signal(syscall.SIGTERM)
	a.says("ended leader")
	require.Zero(t, a.exit())
	e.does("a", ends, 1)
	e.does("b", works, 1)
	b.hands()
	e.does("b", ends, 1)
	require.Equal(t, []string{"a", "b"}, e.order())
}

// TestStubbornProgram: KILL follows TERM, and only then another one begins.
func TestStubbornProgram(t *testing.T) {
	e := newElection(t)
	a, b := e.two([]string{stubborn, "--grace", "200ms"}, nil)
	a.hands()
	e.does("b", works, 1)
	b.hands()
	require.Equal(t, []string{"a", "b"}, e.order())
}

// TestKilled: the program of an elector that is killed does not survive it, also if it
// hears no TERM. It is not only the end of the lease that ends it.
func TestKilled(t *testing.T) {
	e := newElection(t)
	longer := []string{"--session-timeout", (20 * tick).String()}
	a, b := e.two(append(longer, stubborn, "--grace", "100ms", "--listen", "127.0.0.1:0"), longer)
	_, text := a.page("/leader")()
	var leads struct{ Deadline time.Time }
	require.NoError(t, json.Unmarshal([]byte(text), &leads))
	a.signal(syscall.SIGKILL)
	require.Equal(t, -1, a.exit())
	e.does("b", works, 1)
	b.hands()
	require.Equal(t, []string{"a", "b"}, e.order())
	for _, d := range e.deeds() {
		if d.id == "a" {
			require.Less(t, d.time, leads.Deadline.UnixNano(), "at the end of the lease")
		}
	}
}

// TestStopped: nor does that of one that is stopped, which finds itself behind the other
// one when it goes on, and leads again after it.
func TestStopped(t *testing.T) {
	e := newElection(t)
	a, b := e.two(slices.Concat(expiring, []string{stubborn, "--grace", "1m", "--listen", "127.0.0.1:0"}), expiring)
	leads := a.page("/leader")
	require.Equal(t, http.StatusOK, code(leads()))
	a.signal(syscall.SIGSTOP)
	e.does("b", works, 1)
	a.signal(syscall.SIGCONT)
	require.Equal(t, http.StatusServiceUnavailable, code(leads()), "the first answer after it was stopped")
	a.says("program exited")
	a.says("follower")
	b.hands()
	e.does("a", begins, 2)
	require.Equal(t, http.StatusOK, code(leads()))
	a.signal(syscall.SIGKILL)
	a.exit()
	require.Equal(t, []string{"a", "b", "a"}, e.order())
}

// TestCut: what cannot prove that it leads has ended when another one begins, and does not
// say that it leads when another one does.
func TestCut(t *testing.T) {
	e := newElection(t)
	a, b := e.two(slices.Concat(expiring, []string{stubborn, "--grace", "1m", "--listen", "127.0.0.1:0", "--leader-end-command", "echo ended $ELECTOR_ROLE"}),
		slices.Concat(expiring, []string{"--listen", "127.0.0.1:0"}))
	b.read = 0
	leads, alsoLeads := a.page("/leader"), b.page("/leader")
	a.cut(true)
	began := time.Now()
	for code(alsoLeads()) != http.StatusOK {
		require.Less(t, time.Since(began), patience, "nobody leads")
	}
	require.Equal(t, http.StatusServiceUnavailable, code(leads()))
	e.does("b", begins, 1)
	a.says("ended follower")
	a.cut(false)
	a.says("follower")
	b.hands()
	e.does("a", begins, 2)
	a.signal(syscall.SIGKILL)
	a.exit()
	require.Equal(t, []string{"a", "b", "a"}, e.order())
}

// TestEndFails: nobody begins while an end command is tried, which the exit code tells of.
func TestEndFails(t *testing.T) {
	e := newElection(t)
	say := func(what string) string {
		return `echo "$ELECTOR_INSTANCE_ID ` + what + ` $$ $(date +%s%N)" >> "$` + lockFileVariable + `"`
	}
	a, b := e.two([]string{"--end-tries", "3", "--end-pause", "300ms", "--leader-end-command", say("fails") + "; exit 1"},
		[]string{"--leader-begin-command", say("begun")})
	a.signal(syscall.SIGTERM)
	require.Equal(t, 3, a.exit())
	a.says("the work may still run")
	e.does("b", works, 1)
	b.hands()
	var after []string
	for _, d := range e.deeds() {
		if d.event != works {
			after = append(after, d.id+" "+d.event)
		}
	}
	require.Equal(t, []string{"a begin", "a end", "a fails", "a fails", "a fails", "b begun", "b begin", "b end"}, after)
}

// TestBeginHangs: a begin command has its time, and then another one leads.
func TestBeginHangs(t *testing.T) {
	e := newElection(t)
	a := e.run(checked(t), "a", stubborn, "--begin-timeout", "3s", "--grace", "100ms",
		"--leader-begin-command", `"$SELF" & wait`, "--leader-error-command", `echo "told: $ELECTOR_ERROR"`)
	e.does("a", works, 1)
	b := e.run(checked(t), "b", program...)
	require.Contains(t, a.says("told: "), "did not return within BeginTimeout")
	e.does("b", works, 1)
	b.hands()
	a.hands()
	require.Equal(t, []string{"a", "b"}, e.order())
}

// TestServersComeUpLater: an elector may be started before them.
func TestServersComeUpLater(t *testing.T) {
	for i := range servers.Servers() {
		require.NoError(t, servers.Kill(i))
	}
	e := newElection(t)
	a := e.prepare(checked(t), "a", slices.Concat([]string{"--listen", "127.0.0.1:0"}, program)...)
	a.start()
	ready := a.page("/readyz")
	a.says("failed to connect")
	require.Equal(t, http.StatusServiceUnavailable, code(ready()))
	// A server of 3.8 never answers a client that comes before it has its data.
	a.refuse(true)
	for i := range servers.Servers() {
		require.NoError(t, servers.Start(i))
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(t, servers.Ready(ctx))
	a.refuse(false)
	e.does("a", works, 1)
	require.Equal(t, http.StatusOK, code(ready()))
	a.hands()
	require.NotContains(t, a.text(), "level=ERROR", strings.Join(a.cmd.Args, " "))
}
