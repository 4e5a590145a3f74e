//go:build unix && !no_etcd

package main

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/cmd/elector/top"
	"github.com/go-leaderelection/leaderelection/internal/testenv/certtest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/etcdserver"
)

// onEtcd is an etcd with TLS, and the processes that take part in an election on it.
type onEtcd struct {
	*electors
	srv   *etcdserver.Cluster
	flags []string
}

func newOnEtcd(t *testing.T) *onEtcd {
	authority := certtest.New(t)
	srv := etcdserver.Start(t, etcdserver.Config{TLS: authority})
	ca, cert, key := authority.Files("127.0.0.1")
	return &onEtcd{&electors{T: t, file: filepath.Join(t.TempDir(), "deeds")}, srv, []string{
		"--backend", "etcd", "--etcd-members", srv.Addr(0), "--etcd-keyspace", "/jobs/one", "--session-timeout", "5s",
		"--ca-file", ca, "--cert-file", cert, "--key-file", key,
	}}
}

func (e *onEtcd) run(name, script string, more ...string) *process {
	e.Helper()
	args := slices.Concat([]string{"run", "--instance-id", name, "--grace", "10ms"}, e.flags, more)
	return start(e.T, []string{"NAME=" + name, "FILE=" + e.file}, append(args, "--", "/bin/sh", "-c", script)...)
}

func (e *onEtcd) call(args ...string) *process {
	e.Helper()
	return start(e.T, nil, append(args, e.flags...)...)
}

// TestEtcd: who is killed is followed after the lease's end, and who resigns at once; others
// look on, and end it.
func TestEtcd(t *testing.T) {
	t.Parallel()
	e := newOnEtcd(t)
	a := e.run("a", busy)
	a.says("works")
	watching := e.call("watch")
	watching.says("") // that a leads
	b := e.run("b", busy)
	b.logs("follower")
	a.signal(syscall.SIGKILL)
	require.Equal(t, -1, a.exit())
	b.says("works")
	c := e.run("c", busy)
	c.logs("follower")

	status := e.call("status", "--json")
	var got struct {
		Leader     place   `json:"leader"`
		Candidates []place `json:"candidates"`
	}
	require.NoError(t, json.Unmarshal([]byte(status.says("{")), &got))
	require.Equal(t, exitOK, status.exit())
	require.Equal(t, "b", got.Leader.Name)
	require.Len(t, got.Candidates, 2)
	table := e.call("status")
	require.Contains(t, table.says("leader"), " - ", "it tells since when, and does not know")

	b.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, b.exit())
	c.says("works")
	e.requireOneAfterAnother("a", "b", "c")
	for _, name := range []string{"b", "c"} {
		watching.out.wait(t, func(line string) bool { return strings.Contains(line, name+" leads") }, name)
	}

	require.Equal(t, exitOK, e.call("end").exit())
	require.Equal(t, exitBackend, c.exit())
	require.Equal(t, exitBackend, watching.exit())
	require.Equal(t, exitFailed, e.call("end").exit(), "there is no election to end")
	require.Equal(t, exitOK, e.call("delete").exit())
}

// The leader that is requested to resign ends its program, and joins again behind the next leader.
func TestResignOnEtcd(t *testing.T) {
	t.Parallel()
	e := newOnEtcd(t)
	require.Equal(t, exitNobody, e.call("resign").exit(), "there is no election")
	a := e.run("a", busy)
	a.says("works")
	b := e.run("b", busy)
	b.logs("follower")
	resign := e.call("resign")
	require.Regexp(t, `^a has handed over; b leads, token [1-9][0-9]*$`, resign.says("a has"))
	require.Equal(t, exitOK, resign.exit())
	b.says("works")
	a.logs("follower")
	e.requireOneAfterAnother("a", "b")
}

// TestPagesOnEtcd: who has no connection does not say that it is ready, nor who leads.
func TestPagesOnEtcd(t *testing.T) {
	t.Parallel()
	e := newOnEtcd(t)
	e.run("a", busy, "--value", "10.0.0.1:80").says("works")
	follower := e.run("b", busy, listening...)
	pages := follower.pages()
	follower.logs("follower")
	pages.becomes("/readyz", 200, `{"ok":true}`)
	pages.becomes("/leader", 503, `"name":"a","value":"10.0.0.1:80",`)
	e.srv.Kill(0)
	pages.becomes("/readyz", 503, "no connection to etcd")
	pages.becomes("/leader", 503, `"leader":null`)
	pages.is("/healthz", 200, `{"ok":true}`)
	e.srv.Restart(0)
	pages.becomes("/readyz", 200, `{"ok":true}`)
}

// TestTopOnEtcd: top looks on at several elections, by one client; it does not find any.
func TestTopOnEtcd(t *testing.T) {
	t.Parallel()
	e := newOnEtcd(t)
	e.run("a", busy).says("works")
	s, _, err := parse(t, append([]string{"run"}, e.flags...)...)
	require.NoError(t, err)
	require.ErrorIs(t, s.topSupports(nil, "/jobs"), errors.ErrUnsupported)
	require.NoError(t, s.topSupports([]string{"/jobs/one", "/jobs/two"}, ""))
	b, err := s.open()
	require.NoError(t, err)
	t.Cleanup(b.close)
	f := newFeed(b, "", time.Second)
	ctx, stop := context.WithCancel(t.Context())
	f.start(ctx, []string{"/jobs/one", "/jobs/two"})
	var leader string
	var gone bool
	for leader == "" || !gone {
		select {
		case m := <-f.messages:
			switch m := m.(type) {
			case top.Heard:
				require.Equal(t, "/jobs/one", m.Election)
				leader = m.Candidates[0].Name
			case top.Failed:
				require.Equal(t, "/jobs/two", m.Election)
				gone = m.Gone
			}
		case <-time.After(patience):
			require.Fail(t, "nothing is told of both")
		}
	}
	require.Equal(t, "a", leader)
	stop()
	f.tasks.Wait()
}
