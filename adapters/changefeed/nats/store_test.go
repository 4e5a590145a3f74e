package nats

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t testing.TB) *storetest.Backend { return onOneServer(t, shared.Get(t)) })
}

func TestElection(t *testing.T) {
	shared.Get(t)
	t.Parallel()
	server, err := dbserver.NATS() // which is killed while others use theirs
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Close()) }()
	storetest.RunElection(t, func(t testing.TB) *storetest.Backend { return onOneServer(t, server) })
}

// TestPartitions fails if a leader that is cut off from the server still acts when the next leader
// starts.
func TestPartitions(t *testing.T) {
	t.Parallel()
	server, bucket := shared.Get(t), place()
	storetest.RunPartitions(t, func(t testing.TB) storetest.Client {
		network, err := dbserver.NewProxy(server.Addr())
		require.NoError(t, err)
		t.Cleanup(network.Close)
		return storetest.Client{
			Store: newStore(t, connect(t, network.Addr()), bucket), Cut: network.Cut, Heal: network.Heal,
		}
	}, nil)
}

func TestRefusesBadArguments(t *testing.T) {
	conn := connect(t, shared.Get(t).Addr())
	_, err := New(nil, "a", "b")
	require.ErrorIs(t, err, leaderelection.ErrNilConn)
	for _, bucket := range []string{"", "a.b", "a b", "ü", "*"} {
		_, err = New(conn, bucket, "key")
		require.ErrorIs(t, err, leaderelection.ErrInvalidOption, bucket)
	}
	for _, key := range []string{"", ".", "a.", ".a", "a..b", "a b", "*", "a.>", "ü"} {
		_, err = New(conn, "bucket", key)
		require.ErrorIs(t, err, leaderelection.ErrInvalidOption, key)
	}
	for name, opts := range map[string][]nats.Option{
		"Default":     nil,
		"Never":       {nats.NoReconnect()},
		"Outage":      {nats.IgnoreAuthErrorAbort()},
		"Credentials": {nats.MaxReconnects(-1)},
	} {
		gives, err := nats.Connect(conn.ConnectedUrl(), opts...)
		require.NoError(t, err)
		defer gives.Close()
		_, err = New(gives, "bucket", "key")
		require.ErrorIs(t, err, leaderelection.ErrInvalidOption, name)
		require.ErrorContains(t, err, "closes itself", name)
		_, err = New(gives, "bucket", "key", WithClosingConnection())
		require.NoError(t, err, name)
	}
	for _, o := range []Option{nil, WithReplicas(0), WithReplicas(6)} {
		_, err = New(conn, "bucket", "key", o)
		require.ErrorIs(t, err, leaderelection.ErrInvalidOption)
	}
	var _ *nats.Conn = conn
}
