//go:build unix && !no_etcd

package main

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/cmd/elector/top"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// newEtcdHarness returns a harness for an etcd server with TLS, and the server.
func newEtcdHarness(t *testing.T) (*harness, *dbserver.EtcdCluster) {
	authority := testenv.NewAuthority(t)
	srv := dbserver.StartEtcd(t, dbserver.EtcdConfig{TLS: authority})
	ca, cert, key := authority.Files("127.0.0.1")
	h := newHarness(t, []string{
		"--backend", "etcd", "--etcd-members", srv.Addr(0), "--etcd-keyspace", "/jobs/one", "--session-timeout", "5s",
		"--ca-file", ca, "--cert-file", cert, "--key-file", key,
	})
	h.runFlags = func(string) []string { return []string{"--grace", "10ms"} }
	return h, srv
}

// TestEtcd_LeaderIsReplaced checks on the backend etcd that another candidate replaces a leader that is killed or
// resigns, that two programs never run at the same time, and that the commands status, end and delete work.
func TestEtcd_LeaderIsReplaced(t *testing.T) {
	t.Parallel()
	h, _ := newEtcdHarness(t)
	h.requireSuccession(func() {
		status := h.command("status", "--json")
		var got struct {
			Leader     candidateInfo   `json:"leader"`
			Candidates []candidateInfo `json:"candidates"`
		}
		require.NoError(t, json.Unmarshal([]byte(status.waitForOutput("{")), &got))
		require.Equal(t, cmdline.OK, status.exitCode())
		require.Equal(t, "b", got.Leader.Name)
		require.Len(t, got.Candidates, 2)
		table := h.command("status")
		require.Contains(t, table.waitForOutput("leader"), " - ", "the time of joining is unknown")
	})
	require.Equal(t, cmdline.Failed, h.command("end").exitCode(), "the election does not exist")
	require.Equal(t, cmdline.OK, h.command("delete").exitCode())
}

// TestEtcd_LeaderJoinsAgainAfterResign checks that a leader on etcd that the command resign requests to resign stops
// its program before the next leader starts one, and then joins the election again.
func TestEtcd_LeaderJoinsAgainAfterResign(t *testing.T) {
	t.Parallel()
	h, _ := newEtcdHarness(t)
	require.Equal(t, cmdline.NoLeader, h.command("resign").exitCode(), "there is no election")
	a := h.lead("a", stubborn)
	b := h.follow("b", stubborn)
	resign := h.command("resign")
	require.Regexp(t, `^a has handed over; b leads, token [1-9][0-9]*$`, resign.waitForOutput("a has"))
	require.Equal(t, cmdline.OK, resign.exitCode())
	b.waitForOutput("works")
	a.waitForLog("follower")
	h.requireOrder("a", "b")
}

// TestEtcd_FollowerIsNotReadyWithoutConnection checks that a follower that has lost its connection to etcd reports on
// --listen that it is not ready, and does not report the leader that it has observed before.
func TestEtcd_FollowerIsNotReadyWithoutConnection(t *testing.T) {
	t.Parallel()
	h, srv := newEtcdHarness(t)
	h.run("a", stubborn, "--value", "10.0.0.1:80").waitForOutput("works")
	follower := h.run("b", stubborn, listening...)
	pages := follower.webClient()
	follower.waitForLog("follower")
	pages.waitForPage("/readyz", 200, `{"ok":true}`)
	pages.waitForPage("/leader", 503, `"name":"a","value":"10.0.0.1:80",`)
	srv.Kill(0)
	pages.waitForPage("/readyz", 503, `"reason":"disconnected"`)
	pages.waitForPage("/leader", 503, `"leader":null`)
	pages.requirePage("/healthz", 200, `{"ok":true}`)
	srv.Restart(0)
	pages.waitForPage("/readyz", 200, `{"ok":true}`)
}

// TestEtcd_TopShowsElections checks that the command top can show several elections on etcd with one client, and
// rejects --under, which etcd does not support.
func TestEtcd_TopShowsElections(t *testing.T) {
	t.Parallel()
	h, _ := newEtcdHarness(t)
	h.run("a", stubborn).waitForOutput("works")
	s, _, err := parse(t, append([]string{"run"}, h.flags...)...)
	require.NoError(t, err)
	require.ErrorIs(t, s.checkTop(nil, "/jobs"), errors.ErrUnsupported)
	require.NoError(t, s.checkTop([]string{"/jobs/one", "/jobs/two"}, ""))
	b, err := s.open()
	require.NoError(t, err)
	t.Cleanup(b.close)
	p := newPoller(b, "", time.Second)
	ctx, stop := context.WithCancel(t.Context())
	p.startPolling(ctx, []string{"/jobs/one", "/jobs/two"})
	var leader string
	var missing bool
	for leader == "" || !missing {
		select {
		case m := <-p.messages:
			switch m := m.(type) {
			case top.Listed:
				require.Equal(t, "/jobs/one", m.Election)
				leader = m.Candidates[0].Name
			case top.Missing:
				require.Equal(t, "/jobs/two", m.Election)
				missing = true
			case top.Failed:
				require.NoError(t, m.Err)
			}
		case <-time.After(patience):
			require.Fail(t, "the elections were not shown")
		}
	}
	require.Equal(t, "a", leader)
	stop()
	p.tasks.Wait()
}
