package etcd_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/etcd"
	"github.com/go-leaderelection/leaderelection/electiontest"
)

// TestResign_RevokesLeaseIfContextIsDone checks that Resign revokes the lease although the caller's context is
// done: otherwise the key would remain (etcd#22123, etcd#21128).
func TestResign_RevokesLeaseIfContextIsDone(t *testing.T) {
	srv := startServers(t, 1)
	client := srv.Client()
	ctx, cancel := context.WithCancel(t.Context())
	c := startCandidate(t, client, etcd.WithContext(ctx), etcd.WithSessionTimeout(time.Minute))
	l := c.waitForLeadership()
	cancel()
	require.NoError(t, <-c.ended)
	require.ErrorIs(t, l.Err(), leaderelection.ErrResigned)
	electiontest.Confirm(t, c.Resign)
	leases, err := client.Leases(t.Context())
	require.NoError(t, err)
	require.Empty(t, leases.Leases)
}

// TestResign_DoesNotBlockIfUnreachable checks that Resign and EndElection do not block while etcd cannot be
// reached, return ErrUnconfirmed, and take effect when etcd can be reached again.
func TestResign_DoesNotBlockIfUnreachable(t *testing.T) {
	srv := startServers(t, 1)
	p := newProxiedClient(t, srv)
	long := etcd.WithSessionTimeout(time.Minute)
	c := startCandidate(t, p.Client, long)
	l := c.waitForLeadership()
	ending := startFollower(t, c, p.Client, long)
	p.cutConnection()
	requireReturn(t, "Resign", func() { require.ErrorIs(t, c.Resign(), leaderelection.ErrUnconfirmed) })
	require.ErrorIs(t, l.Err(), leaderelection.ErrResigned)
	requireReturn(t, "EndElection", func() { require.ErrorIs(t, ending.EndElection(), leaderelection.ErrUnconfirmed) })
	require.ErrorIs(t, <-ending.ended, leaderelection.ErrElectionOver)
	p.heal()
	require.Eventually(t, func() bool { return c.Resign() == nil && ending.Resign() == nil && ending.EndElection() == nil }, patience, 10*time.Millisecond)
	got, err := srv.Client().Get(t.Context(), node, clientv3.WithPrefix())
	require.NoError(t, err)
	require.Empty(t, got.Kvs)
}
