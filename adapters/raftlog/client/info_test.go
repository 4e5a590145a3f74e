package client

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv/rpctest"
)

// TestInfos_ReturnsStatusOfAllPeersInTime checks that Infos returns the status or the error of each peer within
// CallTimeout, and that Info rejects an unknown ID.
func TestInfos_ReturnsStatusOfAllPeersInTime(t *testing.T) {
	runCluster(t, []api.Peer{a}, func(t *testing.T, network *rpctest.Network, client *Client) {
		info, err := client.Info(t.Context(), "b")
		require.NoError(t, err)
		require.Equal(t, b, info.Peer)
		_, err = client.Info(t.Context(), "z")
		require.ErrorIs(t, err, api.ErrInvalid)
		network.Down("b", errors.New("no route"))
		network.Deaf("c", true)
		synctest.Wait()
		time.Sleep(time.Second)
		start := time.Now()
		infos := client.Infos(t.Context())
		require.Len(t, infos, 3)
		require.NoError(t, infos[0].Err)
		require.Equal(t, a, infos[0].Info.Peer)
		require.Equal(t, b, infos[1].Peer)
		require.ErrorContains(t, infos[1].Err, "no route")
		require.ErrorContains(t, infos[2].Err, "no reply in time")
		require.Equal(t, DefaultCallTimeout, time.Since(start))
	})
}
