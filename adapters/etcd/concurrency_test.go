package etcd_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/go-leaderelection/leaderelection/adapters/etcd"
	"github.com/go-leaderelection/leaderelection/electiontest"
)

// TestInCompanyOfConcurrency: they take turns with ours, in the order in which they came.
func TestInCompanyOfConcurrency(t *testing.T) {
	t.Parallel()
	srv := startServers(t, 1)
	client := srv.Client()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	theirs := func() (*concurrency.Session, *concurrency.Election) {
		s, err := concurrency.NewSession(client, concurrency.WithTTL(60))
		require.NoError(t, err)
		t.Cleanup(func() { s.Close() })
		return s, concurrency.NewElection(s, node)
	}
	_, first := theirs()
	require.NoError(t, first.Campaign(ctx, "theirs, first"))
	second := elect(t, client, etcd.WithClientName("ours"))
	second.follows(first.Key())
	session, third := theirs()
	campaign := make(chan error, 1)
	go func() { campaign <- third.Campaign(ctx, "theirs, third") }()
	joined := func(count int) {
		t.Helper()
		require.Eventually(t, func() bool {
			all, err := etcd.Candidates(client, node)
			return err == nil && len(all) == count
		}, patience, 10*time.Millisecond)
	}
	joined(3)
	last := elect(t, client)
	joined(4)
	require.NoError(t, first.Proclaim(ctx, "another name")) // is no departure
	require.NoError(t, first.Resign(ctx))
	l := second.leads()
	require.Greater(t, l.Token(), first.Rev())
	seen, err := third.Leader(ctx)
	require.NoError(t, err)
	require.Equal(t, "ours", string(seen.Kvs[0].Value))
	require.Equal(t, l.Token(), seen.Kvs[0].CreateRevision)
	select {
	case err := <-campaign:
		require.Fail(t, "two lead", "%v", err)
	default:
	}
	electiontest.Confirm(t, second.Resign)
	require.NoError(t, <-campaign)
	require.NoError(t, session.Close()) // a crash, as far as the line knows
	require.Greater(t, last.leads().Token(), third.Rev())
}

// TestInCompanyOfEtcdctl: it waits for ours, and leads after it.
func TestInCompanyOfEtcdctl(t *testing.T) {
	t.Parallel()
	srv := startServers(t, 1)
	path, err := exec.LookPath("etcdctl")
	if err != nil {
		t.Skipf("NOT TRIED with etcdctl: %v", err)
	}
	client := srv.Client()
	ours := elect(t, client)
	ours.leads()
	cmd := exec.CommandContext(t.Context(), path, "--endpoints", srv.Addr(0), "elect", node, "by etcdctl")
	cmd.Env = append(cmd.Environ(), "ETCDCTL_API=3")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	require.Eventually(t, func() bool {
		all, err := etcd.Candidates(client, node)
		return err == nil && len(all) == 2 && all[1].Name == "by etcdctl"
	}, patience, 10*time.Millisecond)
	next := elect(t, client)
	electiontest.Confirm(t, ours.Resign)
	line := make([]byte, 200)
	n, err := out.Read(line)
	require.NoError(t, err)
	key := strings.Fields(string(line[:n]))[0]
	next.follows(key)
	revoke(t, client, key)
	next.leads()
}
