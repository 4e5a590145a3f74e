//go:build unix && !no_changefeed

package main

import (
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// TestChangefeed: who is killed is followed after its lease, and who resigns at once; others
// look on, and end it. Redis stands for all stores: elector knows no differences.
func TestChangefeed(t *testing.T) {
	t.Parallel()
	srv := redisServer.Get(t)
	e := &electors{T: t, file: filepath.Join(t.TempDir(), "deeds")}
	flags := []string{"--backend", "changefeed", "--store", "redis://" + srv.Addr(), "--election", "/jobs/one", "--session-timeout", "5s"}
	run := func(name string) *process {
		args := slices.Concat([]string{"run", "--instance-id", name, "--grace", "10ms"}, flags)
		return start(t, []string{"NAME=" + name, "FILE=" + e.file}, append(args, "--", "/bin/sh", "-c", busy)...)
	}
	call := func(args ...string) *process { return start(t, nil, append(args, flags...)...) }

	a := run("a")
	a.says("works")
	watching := call("watch")
	watching.says("") // that a leads
	b := run("b")
	b.logs("follower")
	a.signal(syscall.SIGKILL)
	require.Equal(t, -1, a.exit())
	b.says("works")
	require.Contains(t, call("status").says("leader"), "b")
	c := run("c")
	c.logs("follower")
	b.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, b.exit())
	c.says("works")
	e.requireOneAfterAnother("a", "b", "c")
	for _, name := range []string{"b", "c"} {
		watching.out.wait(t, func(line string) bool { return strings.Contains(line, name+" leads") }, name)
	}

	require.Equal(t, exitOK, call("end").exit())
	require.Equal(t, exitBackend, c.exit())
	require.Equal(t, exitBackend, watching.exit())
	require.Equal(t, exitOK, call("delete").exit())
}

// A lease that is stopped is over when the process goes on, and what it ran is dead before
// another's begins.
func TestChangefeedStopped(t *testing.T) {
	t.Parallel()
	srv := redisServer.Get(t)
	e := &electors{T: t, file: filepath.Join(t.TempDir(), "deeds")}
	run := func(name string) *process {
		return start(t, []string{"NAME=" + name, "FILE=" + e.file},
			"run", "--instance-id", name, "--grace", "10ms", "--backend", "changefeed", "--store", "redis://"+srv.Addr(),
			"--election", "/jobs/stopped", "--session-timeout", "5s", "--", "/bin/sh", "-c", busy)
	}
	a := run("a")
	a.says("works")
	b := run("b")
	b.logs("follower")
	a.signal(syscall.SIGSTOP)
	b.says("works")
	a.signal(syscall.SIGCONT)
	a.logs("follower")
	e.requireOneAfterAnother("a", "b")
}

func TestChangefeedUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ store, want string }{
		{"", "--store is required"},
		{"memory:", "within one process"},
		{"oracle://db", "expected one of"},
		{"redis://:secret@127.0.0.1:1/x", "database number"},
	} {
		p := start(t, nil, "run", "--backend", "changefeed", "--store", c.store, "--election", "jobs", "--", "true")
		require.NotEqual(t, exitOK, p.exit(), c.store)
		p.logs(c.want)
		require.NotContains(t, p.log.text(), "secret")
	}
}

// TestChangefeedUnsafe: a store that can lose writes is refused with the flag that accepts it.
func TestChangefeedUnsafe(t *testing.T) {
	t.Parallel()
	redisServer.Get(t) // Redis is installed
	srv, err := dbserver.Redis("--appendonly", "no", "--save", "3600 1")
	require.NoError(t, err)
	defer func() { require.NoError(t, srv.Close()) }()
	run := func(command string, flags ...string) *process {
		args := append([]string{command, "--backend", "changefeed", "--store", "redis://" + srv.Addr(), "--election", "jobs"}, flags...)
		return start(t, nil, args...)
	}
	for _, command := range []string{"status", "watch", "end", "delete"} {
		p := run(command)
		require.Equal(t, exitFailed, p.exit(), command)
		p.logs("--store-unsafe restart")
	}
	p := run("run", "--", "true")
	p.logs("--store-unsafe restart")
	p.signal(syscall.SIGTERM)
	p.exit()
	p = run("run", "--store-unsafe", "power-loss,restart", "--session-timeout", "5s", "--", "true")
	require.Equal(t, exitOK, p.exit())

	p = run("run", "--store-unsafe", "fire", "--", "true")
	require.Equal(t, exitUsage, p.exit())
	p.logs("failover, power-loss, restart")
}
