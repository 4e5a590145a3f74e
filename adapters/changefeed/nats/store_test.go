package nats

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

func TestStore_SatisfiesContract(t *testing.T) {
	storetest.Run(t, func(t testing.TB) *storetest.Backend { return newBackend(t, shared.Get(t)) })
}

// TestElections_SatisfyContract tests the contract of elections. The test uses a separate server, because one of
// the cases kills it.
func TestElections_SatisfyContract(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	storetest.RunElection(t, func(t testing.TB) *storetest.Backend { return newBackend(t, server) })
}

// TestPartitions_LeaderStopsBeforeNextLeads checks that a leader that is cut off from the server has stopped when the
// next leader starts.
func TestPartitions_LeaderStopsBeforeNextLeads(t *testing.T) {
	t.Parallel()
	server, bucket := shared.Get(t), newBucket()
	storetest.RunPartitions(t, func(t testing.TB) storetest.Client {
		network := dbserver.StartProxy(t, server.Addr())
		return storetest.Client{
			Store: newStore(t, connect(t, network.Addr()), bucket), Cut: network.Cut, Heal: network.Heal,
		}
	}, nil)
}

// TestNewStore_RejectsInvalidArguments checks that NewStore returns ErrInvalid for invalid arguments, such
// as an empty key, and for a connection that may close itself.
func TestNewStore_RejectsInvalidArguments(t *testing.T) {
	conn := connect(t, shared.Get(t).Addr())
	_, err := NewStore(nil, "a", "b")
	require.ErrorIs(t, err, leaderelection.ErrInvalid)
	for _, bucket := range []string{"", "a.b", "a b", "ü", "*"} {
		_, err = NewStore(conn, bucket, "key")
		require.ErrorIs(t, err, leaderelection.ErrInvalid, bucket)
	}
	for _, key := range []string{"", ".", "a.", ".a", "a..b", "a b", "*", "a.>", "ü"} {
		_, err = NewStore(conn, "bucket", key)
		require.ErrorIs(t, err, leaderelection.ErrInvalid, key)
	}
	for name, opts := range map[string][]nats.Option{
		"Default":     nil,
		"Never":       {nats.NoReconnect()},
		"Outage":      {nats.IgnoreAuthErrorAbort()},
		"Credentials": {nats.MaxReconnects(-1)},
	} {
		closing, err := nats.Connect(conn.ConnectedUrl(), opts...)
		require.NoError(t, err)
		defer closing.Close()
		_, err = NewStore(closing, "bucket", "key")
		require.ErrorIs(t, err, leaderelection.ErrInvalid, name)
		require.ErrorContains(t, err, "closes itself", name)
		_, err = NewStore(closing, "bucket", "key", WithClosingConnection())
		require.NoError(t, err, name)
	}
	for _, o := range []Option{nil, WithReplicas(0), WithReplicas(6)} {
		_, err = NewStore(conn, "bucket", "key", o)
		require.ErrorIs(t, err, leaderelection.ErrInvalid)
	}
}

// TestDependencies_ExcludeDriversOfOtherStores checks that a program that imports this store does not link the
// driver of another store.
func TestDependencies_ExcludeDriversOfOtherStores(t *testing.T) {
	fixture.RequireOneDriver(t, "github.com/nats-io/nats.go")
}
