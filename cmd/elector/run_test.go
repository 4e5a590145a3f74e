//go:build unix

package main

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const (
	// busy is a program that does something all the time, also when told to end.
	busy = `trap : TERM; echo "started $ELECTOR_TOKEN"; while :; do echo "$NAME" >> "$FILE"; echo works; sleep 0.01; done`
	// polite is one that ends in good order.
	polite = `trap 'echo "$NAME ends" >> "$FILE"; exit 0' TERM; echo "$NAME" >> "$FILE"; echo started; while :; do echo "$NAME" >> "$FILE"; sleep 0.01; done`
)

// requireOneAfterAnother checks that nobody has done anything after the next one's first
// deed.
func (e *electors) requireOneAfterAnother(names ...string) {
	e.Helper()
	order := slices.Compact(e.deeds())
	require.Equal(e, names, order)
}

func TestTermOfTheLeader(t *testing.T) {
	e := newElectors(t)
	end := []string{"--leader-end-command", `echo "$NAME end $ELECTOR_ROLE $ELECTOR_LEADER" >> "$FILE"`}
	begin := []string{"--leader-begin-command", `echo "$NAME begin" >> "$FILE"`}
	a := e.run("a", polite, slices.Concat(begin, end)...)
	a.says("started")
	b := e.run("b", polite, begin...)
	b.logs("follower")
	a.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, a.exit())
	b.says("started")
	b.signal(syscall.SIGINT)
	require.Equal(t, exitOK, b.exit())
	got := slices.Compact(e.deeds())
	require.Equal(t, []string{"a begin", "a", "a ends", "a end leader a", "b begin"}, got[:5])
	require.Empty(t, e.srv.Sessions(), "sessions are left")
}

func TestLeaderKilled(t *testing.T) {
	t.Parallel()
	e := newElectors(t)
	a := e.run("a", busy)
	a.says("works")
	b := e.run("b", busy, "--grace", "10ms")
	b.logs("follower")
	a.signal(syscall.SIGKILL)
	require.Equal(t, -1, a.exit())
	b.says("works")
	b.says("works")
	b.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, b.exit())
	e.requireOneAfterAnother("a", "b")
}

// TestLeaderStopped: the program of a leader that is stopped goes on, until its guard
// ends it with the lease.
func TestLeaderStopped(t *testing.T) {
	t.Parallel()
	e := newElectors(t)
	a := e.run("a", busy, "--grace", "10s")
	first := a.says("started")
	a.says("works")
	b := e.run("b", busy, "--grace", "10ms")
	b.logs("follower")
	a.signal(syscall.SIGSTOP)
	second := b.says("started")
	require.NotEqual(t, first, second, "the token is the same")
	b.says("works")
	a.signal(syscall.SIGCONT)
	a.logs("program exited")
	a.logs("follower") // again, behind b
	b.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, b.exit())
	a.says("started")
	a.says("works")
	a.signal(syscall.SIGTERM)
	a.logs("resigning")
	a.signal(syscall.SIGTERM) // the second does not wait for the grace
	require.Equal(t, 128+int(syscall.SIGTERM), a.exit())
	e.requireOneAfterAnother("a", "b", "a")
}

// TestNetworkCut: nobody can lead meanwhile, and who cannot prove to lead does nothing.
func TestNetworkCut(t *testing.T) {
	e := newElectors(t)
	a := e.run("a", polite, "--leader-end-command", `echo "end $ELECTOR_ROLE"`)
	a.says("started")
	e.srv.Blackhole(zktest.BothWays)
	require.Equal(t, "end follower", a.says("end"))
	require.Equal(t, "a ends", e.deeds()[len(e.deeds())-1], "the program goes on")
	e.srv.Heal()
	a.says("started")
	a.signal(syscall.SIGTERM)
	require.Equal(t, "end leader", a.says("end"))
	require.Equal(t, exitOK, a.exit())
}

func TestZooKeeperDownAtStart(t *testing.T) {
	t.Parallel()
	e := newElectors(t)
	e.srv.Stop()
	a := e.run("a", polite)
	a.logs("failed to connect")
	e.srv.Restart(zktest.KeepTree)
	a.says("started")
	a.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, a.exit())
}

// TestZooKeeperNeverUp: nothing is waited for then.
func TestZooKeeperNeverUp(t *testing.T) {
	e := newElectors(t)
	e.srv.Stop()
	a := e.run("a", polite)
	a.logs("failed to connect")
	a.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, a.exit())
}

func TestExitCodeOfTheProgram(t *testing.T) {
	e := newElectors(t)
	a := e.run("a", `trap 'echo heard' HUP; trap 'exit 7' USR1; echo started; while :; do sleep 0.01; done`,
		"--leader-end-command", "echo ended")
	a.says("started")
	a.signal(syscall.SIGHUP)
	a.says("heard")
	a.signal(syscall.SIGUSR1)
	a.says("ended")
	require.Equal(t, 7, a.exit())
}

func TestEnvironmentOfCommands(t *testing.T) {
	e, began := newElectors(t), time.Now()
	t.Setenv("ELECTOR_START_COMMAND", `echo "begin $ELECTOR_ROLE $ELECTOR_LEADER $ELECTOR_ELECTION $ELECTOR_TOKEN."`)
	t.Setenv("ELECTOR_STOP_COMMAND", `echo "end $ELECTOR_ROLE" "  quoted" | tr a-z A-Z`)
	t.Setenv("ELECTOR_ZOOKEEPER_AUTH", "me:secret")
	t.Setenv("ELECTOR_DEADLINE", "inherited")
	a := e.run("a", `echo "program ${ELECTOR_ZOOKEEPER_AUTH-unset} $ELECTOR_INSTANCE_ID"; echo "until $ELECTOR_DEADLINE"`)
	require.Regexp(t, `^begin leader a /jobs/one [1-9][0-9]*\.$`, a.says("begin"))
	require.Equal(t, "program unset a", a.says("program"))
	until := a.says("until ")[len("until "):]
	require.Regexp(t, `^[0-9T:-]+\.[0-9]{9}Z$`, until)
	deadline, err := time.Parse(time.RFC3339Nano, until)
	require.NoError(t, err)
	require.WithinRange(t, deadline, began, time.Now().Add(session))
	require.Equal(t, "END LEADER   QUOTED", a.says("END"))
	require.Equal(t, exitOK, a.exit())
}

func TestStandardInput(t *testing.T) {
	t.Parallel()
	e := newElectors(t)
	in, input, err := os.Pipe()
	require.NoError(t, err)
	defer in.Close()
	for _, c := range []struct {
		want string
		args []string
	}{{"got one", []string{"--stdin"}}, {"got ", nil}} {
		_, err = input.WriteString("one\n")
		require.NoError(t, err)
		args := slices.Concat([]string{"run", "--zookeeper-servers", e.addr, "--quiet", "--leader-begin-command", "cat; echo empty >&2"},
			c.args, []string{"--", "/bin/sh", "-c", `read line; echo "got $line"`})
		a := startWith(t, in, nil, args...)
		require.Equal(t, c.want, a.says("got"))
		require.Equal(t, exitOK, a.exit())
		a.log.end(t)
		require.Equal(t, "empty", a.log.text(), "something else than the command's output was logged")
	}
	input.Close()
}

// TestBeginHangs: what hangs is killed with all that it has started, another one leads,
// and the error command runs.
func TestBeginHangs(t *testing.T) {
	t.Parallel()
	e := newElectors(t)
	a := e.run("a", "", "--leader-begin-command", busy, "--begin-timeout", "300ms", "--grace", "10ms",
		"--leader-error-command", `echo "error $ELECTOR_ROLE $ELECTOR_ERROR"`)
	a.says("works")
	b := e.run("b", busy, "--grace", "10ms")
	require.Contains(t, a.says("error error"), "did not return within BeginTimeout")
	b.says("works")
	b.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, b.exit())
	a.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, a.exit())
	e.requireOneAfterAnother("a", "b")
}

func TestEndFails(t *testing.T) {
	e := newElectors(t)
	a := e.run("a", "", "--leader-begin-command", "echo begun", "--leader-end-command", "echo ending; exit 1",
		"--end-tries", "2", "--end-pause", "10ms")
	a.says("begun")
	a.signal(syscall.SIGTERM)
	a.says("ending")
	a.says("ending")
	require.Equal(t, exitUnclean, a.exit())
	a.logs("the work may still run")
}

func TestElectionEnds(t *testing.T) {
	e := newElectors(t)
	a := e.run("a", polite)
	a.says("started")
	conn, _, err := e.srv.Connect(session)
	require.NoError(t, err)
	require.NoError(t, leaderelection.DeleteElection(conn, "/jobs/one"))
	require.Equal(t, exitBackend, a.exit())
	require.Equal(t, "a ends", strings.Join(e.deeds()[len(e.deeds())-1:], ""))
}
