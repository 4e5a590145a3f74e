//go:build unix

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestLostGrace_RejectsMoreThanGrantedTimeoutAllows checks that elector run rejects a --lost-grace that is longer
// than a twelfth of the session timeout that the server grants, before elector joins the election.
func TestLostGrace_RejectsMoreThanGrantedTimeoutAllows(t *testing.T) {
	h := newZooKeeperHarness(t, zktest.WithSessionTimeouts(100*time.Millisecond, time.Second))
	a := h.run("a", stubborn, "--lost-grace", "84ms") // a twelfth of the session timeout of 1s is less than 84ms
	a.requireExit(cmdline.Usage, "--lost-grace 84ms: more than 83ms, a twelfth of the granted session timeout of 1s")
	require.NotContains(t, h.srv.Tree(), "one", "elector has joined the election")
	a = h.lead("a", stubborn, "--lost-grace", "83ms", "--grace", "10ms")
	a.terminate()
}

// TestLostGrace_RejectsMoreThanRequestedTimeoutAllows checks that the limit of --lost-grace is a twelfth of the
// timeout that elector requests from the backend, which etcd rounds up to whole seconds.
func TestLostGrace_RejectsMoreThanRequestedTimeoutAllows(t *testing.T) {
	config := func(args ...string) error {
		_, err := executeLine(append([]string{"config", "--lost-grace", "1s", "--leader-begin-command", "x"}, args...)...)
		return err
	}
	require.NoError(t, config("--etcd-endpoints", "x:1", "--session-timeout", "11100ms"), "etcd rounds the timeout up to 12 s")
	require.NoError(t, config("--backend", "console"), "the backend has no leases")
	err := config("--etcd-endpoints", "x:1", "--session-timeout", "11s")
	require.ErrorContains(t, err, "--lost-grace 1s: more than 916ms, a twelfth of the requested session timeout of 11s")
	require.Equal(t, cmdline.Usage, exitCode(err))
}

// TestLostGrace_ShrinksWithLaterSessionTimeout checks that the grace that elector uses becomes shorter if a later
// session has a shorter timeout.
func TestLostGrace_ShrinksWithLaterSessionTimeout(t *testing.T) {
	granted := 8 * time.Second
	r := &runCommand{sessionTimeout: func() time.Duration { return granted }}
	require.Equal(t, 500*time.Millisecond, r.allowedLostGrace())
	r.lostGrace = 600 * time.Millisecond
	require.Equal(t, 600*time.Millisecond, r.allowedLostGrace())
	granted = 4 * time.Second
	require.Equal(t, 333*time.Millisecond, r.allowedLostGrace())
}
