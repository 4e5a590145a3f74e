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

// TestElection_KeepsOrderWithConcurrencyCandidates checks that candidates of this package and of etcd's package
// concurrency lead one after the other, in the order in which they have joined.
func TestElection_KeepsOrderWithConcurrencyCandidates(t *testing.T) {
	srv := startServers(t, 1)
	client := srv.Client()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	newConcurrencyElection := func() (*concurrency.Session, *concurrency.Election) {
		s, err := concurrency.NewSession(client, concurrency.WithTTL(60))
		require.NoError(t, err)
		t.Cleanup(func() { s.Close() })
		return s, concurrency.NewElection(s, node)
	}
	_, first := newConcurrencyElection()
	require.NoError(t, first.Campaign(ctx, "first"))
	second := startCandidate(t, client, etcd.WithName("second"))
	second.waitForPredecessor(first.Key())
	session, third := newConcurrencyElection()
	campaign := make(chan error, 1)
	go func() { campaign <- third.Campaign(ctx, "third") }()
	waitForCandidates := func(count int) {
		t.Helper()
		require.Eventually(t, func() bool {
			all, err := etcd.Candidates(t.Context(), client, node)
			return err == nil && len(all) == count
		}, patience, 10*time.Millisecond)
	}
	waitForCandidates(3)
	last := startCandidate(t, client)
	waitForCandidates(4)
	// Proclaim replaces the value of first's key. The key must still count as a candidate's.
	require.NoError(t, first.Proclaim(ctx, "another name"))
	require.NoError(t, first.Resign(ctx))
	l := second.waitForLeadership()
	require.Greater(t, l.Token(), first.Rev())
	seen, err := third.Leader(ctx)
	require.NoError(t, err)
	require.Equal(t, "second", string(seen.Kvs[0].Value))
	require.Equal(t, l.Token(), seen.Kvs[0].CreateRevision)
	select {
	case err := <-campaign:
		require.Fail(t, "two candidates lead", "%v", err)
	default:
	}
	electiontest.Confirm(t, second.Resign)
	require.NoError(t, <-campaign)
	require.NoError(t, session.Close()) // Close revokes the lease; the effect is that of a crash
	require.Greater(t, last.waitForLeadership().Token(), third.Rev())
}

// TestElection_EtcdctlLeadsAfterCandidate checks that "etcdctl elect" waits for a candidate of this package,
// and leads after it.
func TestElection_EtcdctlLeadsAfterCandidate(t *testing.T) {
	srv := startServers(t, 1)
	path, err := exec.LookPath("etcdctl")
	if err != nil {
		t.Skipf("not run with etcdctl: %v", err)
	}
	client := srv.Client()
	first := startLeader(t, client)
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
		all, err := etcd.Candidates(t.Context(), client, node)
		return err == nil && len(all) == 2 && all[1].Name == "by etcdctl"
	}, patience, 10*time.Millisecond)
	next := startCandidate(t, client)
	electiontest.Confirm(t, first.Resign)
	line := make([]byte, 200)
	n, err := out.Read(line)
	require.NoError(t, err)
	key := strings.Fields(string(line[:n]))[0]
	next.waitForPredecessor(key)
	revokeLease(t, client, key)
	next.waitForLeadership()
}
