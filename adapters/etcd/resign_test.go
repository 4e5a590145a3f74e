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

// TestResignAfterTheContextHasEnded: the lease is revoked with a context of the library's own
// (etcd#22123, etcd#21128).
func TestResignAfterTheContextHasEnded(t *testing.T) {
	t.Parallel()
	srv := startServers(t, 1)
	client := srv.Client()
	ctx, cancel := context.WithCancel(t.Context())
	c := elect(t, client, etcd.WithContext(ctx), etcd.WithSessionTimeout(time.Minute))
	l := c.leads()
	cancel()
	require.NoError(t, <-c.ended)
	require.ErrorIs(t, l.Err(), leaderelection.ErrResigned)
	electiontest.Confirm(t, c.Resign)
	leases, err := client.Leases(t.Context())
	require.NoError(t, err)
	require.Empty(t, leases.Leases)
}

// TestEndsWhileEtcdDoesNotAnswer: nothing hangs, and what was not confirmed is said, and done
// when the network is back.
func TestEndsWhileEtcdDoesNotAnswer(t *testing.T) {
	t.Parallel()
	srv := startServers(t, 1)
	p := newProgram(t, srv)
	long := etcd.WithSessionTimeout(time.Minute)
	c := elect(t, p.client, long)
	l := c.leads()
	ends := elect(t, p.client, long)
	ends.follows(c.ID())
	p.cut()
	within(t, patience, "Resign", func() { require.ErrorIs(t, c.Resign(), leaderelection.ErrUnconfirmed) })
	require.ErrorIs(t, l.Err(), leaderelection.ErrResigned)
	within(t, patience, "EndElection", func() { require.ErrorIs(t, ends.EndElection(), leaderelection.ErrUnconfirmed) })
	require.ErrorIs(t, <-ends.ended, leaderelection.ErrElectionOver)
	p.heal()
	require.Eventually(t, func() bool { return c.Resign() == nil && ends.Resign() == nil && ends.EndElection() == nil }, patience, 10*time.Millisecond)
	got, err := srv.Client().Get(t.Context(), node, clientv3.WithPrefix())
	require.NoError(t, err)
	require.Empty(t, got.Kvs)
}
