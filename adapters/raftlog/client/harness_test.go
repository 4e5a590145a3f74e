package client

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv/rpctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The three peers of the cluster that runCluster creates.
var (
	a   = api.Peer{ID: "a", Addr: "a:1"}
	b   = api.Peer{ID: "b", Addr: "b:1"}
	c   = api.Peer{ID: "c", Addr: "c:1"}
	all = []api.Peer{a, b, c}
)

// runCluster runs a test with a cluster of a, b and c, whose leader is a. The client is configured with
// the seeds, and does not refresh the membership.
func runCluster(t *testing.T, seeds []api.Peer, f func(t *testing.T, network *rpctest.Network, client *Client)) {
	synctest.Test(t, func(t *testing.T) {
		network := rpctest.NewNetwork(rpctest.New(a, b, c))
		client := openClient(t, network, Config{Peers: seeds, Refresh: -1})
		defer network.Close()
		defer client.Close()
		f(t, network, client)
	})
}

// openClient returns a client whose pauses have reproducible random lengths.
func openClient(t *testing.T, network *rpctest.Network, cfg Config) *Client {
	cfg.Cluster = "test"
	cfg, err := cfg.withDefaults()
	require.NoError(t, err)
	jitter := uint32(1)
	var lock sync.Mutex
	return newClient(cfg, network.Connect, func() float64 {
		lock.Lock()
		defer lock.Unlock()
		jitter = jitter*1664525 + 1013904223
		return float64(jitter>>8) / (1 << 24)
	})
}

// countCalls returns how many calls with the given name all peers have received together.
func countCalls(network *rpctest.Network, call string) (n int) {
	for _, p := range all {
		n += network.Peer(p).Calls(call)
	}
	return n
}

// contextWithin returns a context with a timeout.
func contextWithin(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
