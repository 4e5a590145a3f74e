//go:build unix

package main

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// TestFollowerCommand_RunsForEachLeader checks that --follower-command runs once for each leader that a follower
// observes, and has ended before the begin command of the same instance starts.
func TestFollowerCommand_RunsForEachLeader(t *testing.T) {
	t.Parallel()
	h := newZooKeeperHarness(t)
	h.flags[len(h.flags)-1] = "20s" // the session timeout: no session may expire on a machine that stalls
	a := h.lead("a", graceful, "--value", "10.0.0.1:80")
	b := h.run("b", graceful, "--leader-begin-command", "echo begins", "--leader-end-command", "echo ends",
		"--follower-command", `trap 'echo stopped; exit' TERM; echo "$ELECTOR_ROLE of $ELECTOR_LEADER"; while :; do sleep 0.01; done`)
	b.waitForOutput("follower of a")
	c := h.run("c", graceful, "--follower-command", `echo "$ELECTOR_ROLE of $ELECTOR_LEADER at $ELECTOR_LEADER_VALUE, ${ELECTOR_TOKEN:-no token}"; exit 1`,
		"--listen", "127.0.0.1:0")
	c.waitForOutput("follower of a at 10.0.0.1:80, no token")
	c.webClient().waitForPage("/leader", 503, `"leader":{"name":"a","value":"10.0.0.1:80",`)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"status"}, "leader    a     10.0.0.1:80  "},
		{[]string{"status", "--json"}, `{"election":"/jobs/one","leader":{"name":"a","value":"10.0.0.1:80",`},
	} {
		p := start(t, append(c.args, "--zookeeper-servers", h.addr, "--election", "/jobs/one")...)
		p.waitForOutput(c.want)
		require.Equal(t, cmdline.OK, p.exitCode())
	}
	c.waitForLog("follower command failed")

	a.terminate()
	b.waitForOutput("stopped")
	b.waitForOutput("begins")
	b.waitForOutput("started")
	c.waitForOutput("follower of b at , no token")

	resign := start(t, "resign", "--zookeeper-servers", h.addr, "--election", "/jobs/one")
	require.Equal(t, cmdline.OK, resign.exitCode())
	b.waitForOutput("ends")
	c.waitForOutput("started")
	b.waitForOutput("follower of c")
	b.signal(syscall.SIGTERM)
	b.waitForOutput("stopped")
	require.Equal(t, cmdline.OK, b.exitCode())
	c.terminate()
}

// TestFollowerCommand_RunsIfLeaderIsUnknown checks that --follower-command also runs on a backend that does not
// report who the leader is.
func TestFollowerCommand_RunsIfLeaderIsUnknown(t *testing.T) {
	t.Parallel()
	p, keyboard := startConsole(t, "--leader-begin-command", "echo begins", "--follower-command", `echo "follows${ELECTOR_LEADER}."`)
	p.waitForOutput("follows.")
	fmt.Fprintln(keyboard, "LEADER")
	p.waitForOutput("begins")
	fmt.Fprintln(keyboard, "NOTLEADER")
	p.waitForOutput("follows.")
	keyboard.Close()
	require.Equal(t, cmdline.OK, p.exitCode())
}
