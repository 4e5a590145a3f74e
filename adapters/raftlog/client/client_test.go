package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv/rpctest"
)

// TestNew_RejectsInvalidConfig checks that New rejects a Config without a required field, with contradictory
// authentication, or with a negative duration.
func TestNew_RejectsInvalidConfig(t *testing.T) {
	valid := Config{Cluster: "x", Peers: all, Insecure: true}
	client, err := New(valid)
	require.NoError(t, err)
	require.NoError(t, client.Close())
	for _, change := range []func(*Config){
		func(c *Config) { c.Cluster = "" },
		func(c *Config) { c.Peers = nil },
		func(c *Config) { c.Peers = []api.Peer{{ID: "a"}} },
		func(c *Config) { c.Insecure = false },
		func(c *Config) { c.Secret = []byte("0123456789abcdef") }, // a Secret is not allowed together with Insecure
		func(c *Config) { c.Insecure, c.Secret = false, []byte("0123456789abcde") },
		func(c *Config) { c.RetryPause = -1 },
		func(c *Config) { c.CallTimeout = -1 },
	} {
		cfg := valid
		change(&cfg)
		_, err := New(cfg)
		require.ErrorIs(t, err, api.ErrInvalid)
	}
}

// TestClient_IdleQueriesOnlyMembership checks that the client does not repeat calls that have succeeded, and
// that an idle client only queries the membership, once in each interval. This covers defects Z2 and Z3 of ØMQ
// Raft.
func TestClient_IdleQueriesOnlyMembership(t *testing.T) {
	runCluster(t, []api.Peer{a}, func(t *testing.T, network *rpctest.Network, client *Client) {
		_, err := client.ChangePeers(t.Context(), api.NewRequestID(), []api.Peer{a, b})
		require.NoError(t, err)
		_, err = client.Propose(t.Context(), api.NewRequestID(), nil)
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		require.Equal(t, 1, countCalls(network, "ChangePeers"))
		require.Equal(t, 1, countCalls(network, "Propose"))
		require.Zero(t, countCalls(network, "Membership")+countCalls(network, "Info")+countCalls(network, "Entries"))
		refreshing := openClient(t, network, Config{Peers: all})
		time.Sleep(10 * time.Minute)
		require.InDelta(t, 120, countCalls(network, "Membership"), 2, "one query every five seconds")
		require.NoError(t, refreshing.Close())
	})
}

// TestClient_DoesNotRetryIfAllPeersRejectIt checks that calls and subscriptions end with ErrRefused, without
// retries, after all peers have rejected the client.
func TestClient_DoesNotRetryIfAllPeersRejectIt(t *testing.T) {
	runCluster(t, all, func(t *testing.T, network *rpctest.Network, client *Client) {
		for _, p := range all {
			network.Down(p.ID, api.ErrRefused)
		}
		_, err := client.Propose(contextWithin(t, time.Minute), api.NewRequestID(), nil)
		require.ErrorIs(t, err, api.ErrRefused)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		s := client.Subscribe(contextWithin(t, time.Minute), 1)
		_, open := <-s.Events()
		require.False(t, open)
		require.ErrorIs(t, s.Err(), api.ErrRefused)
		require.NoError(t, s.Close())
	})
}

// TestClose_EndsCallsWithErrClosed checks that pending and later calls and subscriptions return an error that
// wraps ErrClosed.
func TestClose_EndsCallsWithErrClosed(t *testing.T) {
	runCluster(t, all, func(t *testing.T, network *rpctest.Network, client *Client) {
		network.Hold()
		result := make(chan error, 1)
		go func() {
			_, err := client.Propose(t.Context(), api.NewRequestID(), nil)
			result <- err
		}()
		s := client.Subscribe(t.Context(), 1)
		synctest.Wait()
		require.NoError(t, client.Close())
		err := <-result
		require.ErrorIs(t, err, api.ErrClosed)
		require.ErrorIs(t, err, api.ErrUnknownOutcome)
		require.ErrorIs(t, s.Err(), api.ErrClosed)
		_, err = client.Propose(t.Context(), api.NewRequestID(), nil)
		require.ErrorIs(t, err, api.ErrClosed)
		require.NotErrorIs(t, err, api.ErrUnknownOutcome)
		require.ErrorIs(t, client.Subscribe(t.Context(), 1).Err(), api.ErrClosed)
		require.ErrorIs(t, client.Infos(t.Context())[0].Err, api.ErrClosed)
		_, err = client.Membership(t.Context())
		require.ErrorIs(t, err, api.ErrClosed)
	})
}

// TestClose_EndsSubscriptionWithErrClosed checks that a subscription returns ErrClosed if the client's context
// is done before the subscription's context. The order depends on goroutines, so the test does not start the
// goroutine of the subscription.
func TestClose_EndsSubscriptionWithErrClosed(t *testing.T) {
	runCluster(t, all, func(t *testing.T, network *rpctest.Network, client *Client) {
		s := newSubscription(t.Context(), client, 1, nil)
		defer s.cancel(nil)
		require.NoError(t, client.Close())
		require.ErrorIs(t, s.readPeers(), api.ErrClosed)
	})
}
