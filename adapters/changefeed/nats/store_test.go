package nats

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// onOneServer loses its records with their bucket.
func onOneServer(t testing.TB, server *dbserver.Server) *storetest.Backend {
	bucket, operator := place(), connect(t, server.Addr())
	return &storetest.Backend{
		New:  func(t testing.TB) changefeed.Store { return newStore(t, connect(t, server.Addr()), bucket) },
		Lose: func(t testing.TB) { dropBucket(t, operator, bucket) },
		Put: func(t testing.TB, name string) {
			_, err := bucketOf(t, operator, bucket).Put(ctx(t), name, []byte("1"))
			require.NoError(t, err)
		},
		Is: func(change any, name string) bool {
			c, ok := change.(Change)
			return ok && c.Key == name && string(c.Value) == "1" && !c.Deleted && c.Revision > 0 && !c.Time.IsZero()
		},
		Restart: func(t testing.TB) {
			require.NoError(t, server.Restart())
			require.NoError(t, newStore(t, operator, bucket).Start(ctx(t))) // JetStream runs
		},
		Patience: 30 * time.Second,
	}
}

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
