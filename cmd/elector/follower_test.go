//go:build unix

package main

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFollowerCommand shows that the command runs for each leader, and that it has ended before
// the begin command starts.
func TestFollowerCommand(t *testing.T) {
	t.Parallel()
	e := newElectors(t)
	a := e.run("a", polite, "--value", "10.0.0.1:80")
	a.says("started")
	b := e.run("b", polite, "--leader-begin-command", "echo begins", "--leader-end-command", "echo ends",
		"--follower-command", `trap 'echo stopped; exit' TERM; echo "$ELECTOR_ROLE of $ELECTOR_LEADER"; while :; do sleep 0.01; done`)
	b.says("follower of a")
	c := e.run("c", polite, "--follower-command", `echo "$ELECTOR_ROLE of $ELECTOR_LEADER at $ELECTOR_LEADER_VALUE, ${ELECTOR_TOKEN:-no token}"; exit 1`,
		"--listen", "127.0.0.1:0")
	c.says("follower of a at 10.0.0.1:80, no token")
	c.pages().becomes("/leader", 503, `"leader":{"name":"a","value":"10.0.0.1:80",`)
	for _, look := range []struct {
		args []string
		want string
	}{
		{[]string{"status"}, "leader    a     10.0.0.1:80  "},
		{[]string{"status", "--json"}, `{"election":"/jobs/one","leader":{"name":"a","value":"10.0.0.1:80",`},
	} {
		p := start(t, nil, append(look.args, "--zookeeper-servers", e.addr, "--election", "/jobs/one")...)
		p.says(look.want)
		require.Equal(t, exitOK, p.exit())
	}
	c.logs("follower command failed")

	a.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, a.exit())
	b.says("stopped")
	b.says("begins")
	b.says("started")
	c.says("follower of b at , no token")

	resign := start(t, nil, "resign", "--zookeeper-servers", e.addr, "--election", "/jobs/one")
	require.Equal(t, exitOK, resign.exit())
	b.says("ends")
	c.says("started")
	b.says("follower of c")
	b.signal(syscall.SIGTERM)
	b.says("stopped")
	require.Equal(t, exitOK, b.exit())
	c.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, c.exit())
}

// TestFollowerCommandOnConsole: the backend knows no leader but this instance.
func TestFollowerCommandOnConsole(t *testing.T) {
	t.Parallel()
	p, keyboard := startConsole(t, "--leader-begin-command", "echo begins", "--follower-command", `echo "follows${ELECTOR_LEADER}."`)
	p.says("follows.")
	fmt.Fprintln(keyboard, "LEADER")
	p.says("begins")
	fmt.Fprintln(keyboard, "NOTLEADER")
	p.says("follows.")
	keyboard.Close()
	require.Equal(t, exitOK, p.exit())
}
