//go:build unix && !no_changefeed

package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// newChangefeedHarness returns a harness for an election on Redis. One store suffices, because elector
// treats all stores in the same way.
func newChangefeedHarness(t *testing.T, election string) *harness {
	srv := redisServer.Get(t)
	h := newHarness(t, []string{
		"--backend", "changefeed", "--store", "redis://" + srv.Addr(), "--election", election, "--session-timeout", "5s",
	})
	h.runFlags = func(string) []string { return []string{"--grace", "10ms"} }
	return h
}

// TestChangefeed_LeaderIsReplaced checks on the backend changefeed that another candidate replaces a leader that is
// killed or resigns, that two programs never run at the same time, and that the commands status, end and delete work.
func TestChangefeed_LeaderIsReplaced(t *testing.T) {
	t.Parallel()
	h := newChangefeedHarness(t, "/jobs/one")
	h.requireSuccession(func() { require.Contains(t, h.command("status").waitForOutput("leader"), "b") })
	require.Equal(t, cmdline.OK, h.command("delete").exitCode(), "after the end")
	none := newChangefeedHarness(t, "/jobs/none")
	require.Equal(t, cmdline.OK, none.command("delete").exitCode())
	end := none.command("end")
	end.requireExit(cmdline.Failed, "/jobs/none: there is no such election on changefeed")
}

// TestChangefeed_EndsProgramOfSuspendedLeader checks that the program of a leader that SIGSTOP has suspended has
// ended when the next leader starts its program.
func TestChangefeed_EndsProgramOfSuspendedLeader(t *testing.T) {
	t.Parallel()
	h := newChangefeedHarness(t, "/jobs/stopped")
	a := h.lead("a", stubborn)
	b := h.follow("b", stubborn)
	a.signal(syscall.SIGSTOP)
	b.waitForOutput("works")
	a.signal(syscall.SIGCONT)
	a.waitForLog("follower")
	h.requireOrder("a", "b")
}

// TestChangefeed_RejectsInvalidStoreAddress checks that elector rejects an invalid --store, with an error that does
// not contain the password.
func TestChangefeed_RejectsInvalidStoreAddress(t *testing.T) {
	for _, c := range []struct{ store, want string }{
		{"", "--store is required"},
		{"memory:", "within one process"},
		{"oracle://db", "expected one of"},
		{"redis://:secret@127.0.0.1:1/x", "database number"},
	} {
		_, err := executeLine("run", "--backend", "changefeed", "--store", c.store, "--election", "jobs", "--", "true")
		require.ErrorContains(t, err, c.want)
		require.NotContains(t, err.Error(), "secret")
	}
}

// TestChangefeed_NamesServerThatDoesNotAnswer checks that the error for a store that does not answer contains the
// address of the server and the reason, and that the database driver prints no messages of its own.
func TestChangefeed_NamesServerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	p := start(t, "status", "--store", "redis://127.0.0.1:1", "--election", "jobs", "--timeout", "10s")
	require.NotEqual(t, cmdline.OK, p.exitCode())
	p.waitForLog("at 127.0.0.1:1")
	require.Contains(t, p.log.Text(), "refused")
	require.NotContains(t, p.log.Text(), "pool.go")
}

// TestChangefeed_RejectsUnsafeStoreWithoutFlag checks that elector rejects a store that can lose acknowledged writes
// unless --store-unsafe permits this, and that the error names this flag.
func TestChangefeed_RejectsUnsafeStoreWithoutFlag(t *testing.T) {
	t.Parallel()
	srv := dbserver.StartServer(t, func() (*dbserver.Server, error) { return dbserver.Redis("--appendonly", "no", "--save", "3600 1") })
	h := newHarness(t, []string{"--backend", "changefeed", "--store", "redis://" + srv.Addr(), "--election", "jobs"})
	for _, command := range []string{"status", "watch", "end", "delete"} {
		p := h.command(command)
		p.requireExit(cmdline.Permanent, "--store-unsafe restart")
	}
	p := h.command("run", "--", "true")
	p.requireExit(cmdline.Permanent, "--store-unsafe restart")
	require.Equal(t, 1, strings.Count(p.log.Text(), "is not safe for elections"), p.log.Text())
	p = h.command("run", "--store-unsafe", "power-loss,restart", "--session-timeout", "5s", "--", "true")
	require.Equal(t, cmdline.OK, p.exitCode())

	h.command("run", "--store-unsafe", "fire", "--", "true").requireExit(cmdline.Usage, "failover, power-loss, restart")
}
