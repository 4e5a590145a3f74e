package etcd_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/go-leaderelection/leaderelection/internal/testenv/etcdserver"
)

// cluster is a cluster of etcd servers and the test's clients of it.
type cluster struct {
	*etcdserver.Cluster
	t testing.TB
}

// startServers starts a cluster of n servers, which ends with the test.
func startServers(t testing.TB, n int) *cluster {
	t.Helper()
	return &cluster{etcdserver.Start(t, etcdserver.Config{Members: n}), t}
}

// Client returns a client of all servers, which is closed with the test, after each of the
// functions has changed its configuration.
func (c *cluster) Client(change ...func(*clientv3.Config)) *clientv3.Client {
	c.t.Helper()
	cfg := clientv3.Config{Endpoints: c.Endpoints(), DialTimeout: 5 * time.Second, Logger: zap.NewNop()}
	for _, f := range change {
		f(&cfg)
	}
	client, err := clientv3.New(cfg)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { client.Close() })
	return client
}
