//go:build unix

package redis_test

import (
	"testing"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
)

// TestPartitions fails if a leader that is cut off from the server still acts when the next leader
// starts.
func TestPartitions(t *testing.T) {
	t.Parallel()
	server, key := shared.Get(t), newKey()
	storetest.RunPartitions(t, func(t testing.TB) storetest.Client {
		network := newProxy(t, server.Addr())
		return storetest.Client{
			Store: newStore(t, newClient(t, network.Addr(), nil), key), Cut: network.Cut, Heal: network.Heal,
		}
	}, nil)
}
