package client

import (
	"context"
	"fmt"
	"sync"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/rpc"
)

// Info returns the status of the peer with the given ID. It sends one request, without
// retries. The error is the reason why the peer has not answered within CallTimeout, and
// wraps [api.ErrInvalid] if no peer with that ID is known.
func (c *Client) Info(ctx context.Context, peerID string) (api.Info, error) {
	p, err := c.findPeer(ctx, peerID)
	if err != nil {
		return api.Info{}, err
	}
	return c.queryInfo(ctx, p)
}

// findPeer returns the peer with the ID. It queries the membership if the peer is not known. The
// error wraps ErrInvalid if no peer has this ID.
func (c *Client) findPeer(ctx context.Context, peerID string) (api.Peer, error) {
	known := func() (api.Peer, bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.list.find(peerID)
	}
	p, ok := known()
	if !ok {
		if _, err := c.Membership(ctx); err != nil {
			return api.Peer{}, err
		}
		p, ok = known()
	}
	if !ok {
		return api.Peer{}, fmt.Errorf("%w: no peer of the cluster has the ID %q", api.ErrInvalid, peerID)
	}
	return p, nil
}

// queryInfo returns the status of a peer.
func (c *Client) queryInfo(ctx context.Context, p api.Peer) (i api.Info, err error) {
	err = c.callPeer(ctx, request{}, p, func(ctx context.Context, caller *rpc.Caller) (err error) {
		i, err = caller.Info(ctx)
		return err
	})
	if err != nil {
		return i, fmt.Errorf("raftlog: status of peer %v: %w", p, err)
	}
	return i, nil
}

// PeerInfo is the status of one peer, or the reason why the peer has not answered.
type PeerInfo struct {
	// Peer is the peer that was queried.
	Peer api.Peer
	// Info is the status of the peer, if Err is nil.
	Info api.Info
	// Err is the reason why the peer has not answered.
	Err error
}

// Infos queries all known peers in parallel, and returns their answers within CallTimeout:
// first the members in the order of the membership, then other peers of Config. Peers of
// Config without an ID are queried only if they are not members.
func (c *Client) Infos(ctx context.Context) []PeerInfo {
	peers := c.peers()
	infos := make([]PeerInfo, len(peers))
	var queries sync.WaitGroup
	for i, p := range peers {
		queries.Go(func() {
			info, err := c.queryInfo(ctx, p)
			infos[i] = PeerInfo{p, info, err}
		})
	}
	queries.Wait()
	return infos
}
