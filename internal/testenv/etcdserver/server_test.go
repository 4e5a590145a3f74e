package etcdserver

import (
	"context"
	"crypto/tls"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection/internal/testenv/certtest"
)

// TestKillAndRestart: what was written is there after kill -9, at the same address.
func TestKillAndRestart(t *testing.T) {
	c := Start(t, Config{})
	client := c.Client()
	put, err := client.Put(t.Context(), "a", "b")
	require.NoError(t, err)
	c.Kill(0)
	c.Restart(0)
	got, err := client.Get(t.Context(), "a")
	require.NoError(t, err)
	require.Len(t, got.Kvs, 1)
	require.Equal(t, put.Header.Revision, got.Kvs[0].CreateRevision)
	lease, err := client.Grant(t.Context(), 1)
	require.NoError(t, err)
	require.EqualValues(t, 1, lease.TTL, "the least TTL is longer")
}

// TestLeader: when the cluster's leader is stopped another server leads.
func TestLeader(t *testing.T) {
	c := Start(t, Config{Members: 3})
	first := c.Leader()
	c.Pause(first)
	require.Eventually(t, func() bool { return c.Leader() != first }, 10*time.Second, 10*time.Millisecond)
	c.Resume(first)
}

func TestTLS(t *testing.T) {
	a := certtest.New(t)
	c := Start(t, Config{TLS: a})
	_, err := c.Client().Get(t.Context(), "a")
	require.NoError(t, err)
	stranger := c.Client(func(cfg *clientv3.Config) {
		cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: a.Pool}
		cfg.DialTimeout = 0
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = stranger.Put(ctx, "a", "b")
	require.Error(t, err, "no certificate was asked for")
}
