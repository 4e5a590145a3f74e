package client

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv/rpctest"
)

// TestMembership_FollowsReplacementOfAllPeers checks that an idle client still reaches the cluster after all
// peers were replaced one after another.
func TestMembership_FollowsReplacementOfAllPeers(t *testing.T) {
	runCluster(t, []api.Peer{a}, func(t *testing.T, network *rpctest.Network, _ *Client) {
		client := openClient(t, network, Config{Peers: []api.Peer{a}})
		defer client.Close()
		voters := []api.Peer{a, b, c}
		for i := range 3 {
			added := api.Peer{ID: fmt.Sprint("new", i), Addr: fmt.Sprint("new:", i)}
			network.SetMembers(api.Membership{Index: uint64(10 + i), Voters: append(voters[1:len(voters):len(voters)], added), Outgoing: voters})
			time.Sleep(10 * time.Second)
			network.Lead(added)
			network.Down(voters[0].ID, errors.New("removed"))
			voters = append(voters[1:len(voters):len(voters)], added)
			network.SetMembers(api.Membership{Index: uint64(10 + i), Voters: voters})
		}
		time.Sleep(time.Minute)
		_, err := client.Propose(contextWithin(t, 5*time.Second), api.NewRequestID(), nil)
		require.NoError(t, err)
		m, err := client.Membership(contextWithin(t, 5*time.Second))
		require.NoError(t, err)
		require.Equal(t, voters, m.Voters)
		require.Equal(t, append(voters, a), client.peers(), "seeds are last")
	})
}

// TestMembership_DiscardsReplyOfRemovedPeer checks that Membership does not return the membership of a removed
// peer, which may be old, and that the error says that the peer was removed if no other peer replies.
func TestMembership_DiscardsReplyOfRemovedPeer(t *testing.T) {
	runCluster(t, []api.Peer{c}, func(t *testing.T, network *rpctest.Network, client *Client) {
		network.SetMembers(api.Membership{Index: 5, Voters: []api.Peer{a, b}, Removed: []string{"c"}})
		m, err := client.Membership(contextWithin(t, time.Minute))
		require.NoError(t, err)
		require.Equal(t, []api.Peer{a, b}, m.Voters)
		require.Positive(t, network.Peer(a).Calls("Membership")+network.Peer(b).Calls("Membership"))

		for _, p := range []api.Peer{a, b} {
			network.Down(p.ID, errors.New("no route"))
		}
		alone := openClient(t, network, Config{Peers: []api.Peer{c}, Refresh: -1})
		defer alone.Close()
		_, err = alone.Membership(contextWithin(t, 10*time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "peer c was removed from the cluster")
		network.SetMembers(api.Membership{Index: 6, Voters: []api.Peer{c}, Removed: []string{"c"}})
		_, err = alone.Membership(contextWithin(t, time.Minute))
		require.ErrorIs(t, err, api.ErrRefused)
	})
}
