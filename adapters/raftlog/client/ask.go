package client

// Queries of the membership and of the status of peers.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/rpc"
)

// Membership returns the peers of the cluster according to the peer that has answered: the
// leader if it is known and answers, otherwise any peer. From a peer that was removed from
// the cluster only the addresses of the others are used. Membership retries until ctx is
// done. The error wraps the cause of ctx, [api.ErrRefused] if all peers reject the client, or
// [api.ErrClosed].
func (c *Client) Membership(ctx context.Context) (m api.Membership, err error) {
	var removed error
	err = c.try(ctx, trial{what: "asking for the membership"}, func(ctx context.Context, caller *rpc.Caller) (err error) {
		if m, err = caller.Membership(ctx); err != nil {
			return err
		}
		c.learn(m)
		if len(m.Removed) == 0 {
			return nil
		}
		info, err := caller.Info(ctx)
		if err == nil && slices.Contains(m.Removed, info.Peer.ID) {
			// The others may have changed the membership since.
			removed = fmt.Errorf("%w: peer %s was removed from the cluster", api.ErrRefused, info.Peer.ID)
			err = removed
		}
		return err
	})
	switch {
	case err == nil:
		return m, nil
	case removed != nil && !errors.Is(err, api.ErrRefused):
		err = fmt.Errorf("%w; %v", err, removed)
	}
	return api.Membership{}, err
}

func (c *Client) learn(m api.Membership) {
	c.mu.Lock()
	c.known.learn(m)
	for p, k := range c.conns {
		if k.over() != nil && time.Since(k.begun) > c.cfg.RetryPause {
			delete(c.conns, p)
		}
	}
	c.mu.Unlock()
}

// Info returns the status of the peer with the given ID. It sends one request, without
// retries. The error is the reason why the peer has not answered within CallTimeout, and
// wraps [api.ErrInvalid] if no peer with that ID is known.
func (c *Client) Info(ctx context.Context, peerID string) (api.Info, error) {
	p, err := c.find(ctx, peerID)
	if err != nil {
		return api.Info{}, err
	}
	return c.info(ctx, p)
}

// find returns the peer with the given ID. It queries the membership if it does not know the peer.
// The error wraps ErrInvalid if no peer with that ID is known.
func (c *Client) find(ctx context.Context, peerID string) (api.Peer, error) {
	known := func() (api.Peer, bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.known.find(peerID)
	}
	p, ok := known()
	if !ok {
		if _, err := c.Membership(ctx); err != nil {
			return api.Peer{}, err
		}
		p, ok = known()
	}
	if !ok {
		return api.Peer{}, fmt.Errorf("%w: unknown peer %q", api.ErrInvalid, peerID)
	}
	return p, nil
}

func (c *Client) info(ctx context.Context, p api.Peer) (i api.Info, err error) {
	err = c.attempt(ctx, trial{}, p, func(ctx context.Context, caller *rpc.Caller) (err error) {
		i, err = caller.Info(ctx)
		return err
	})
	if err != nil {
		return i, fmt.Errorf("raftlog: status of peer %v: %w", p, err)
	}
	return i, nil
}

// PeerInfo is the answer of one peer.
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
	var asked sync.WaitGroup
	for i, p := range peers {
		asked.Go(func() {
			info, err := c.info(ctx, p)
			infos[i] = PeerInfo{p, info, err}
		})
	}
	asked.Wait()
	return infos
}

// refreshing queries the membership every Refresh and when peers do not answer, at most once in
// each RetryPause.
func (c *Client) refreshing() {
	var due <-chan time.Time
	if c.cfg.Refresh > 0 {
		ticker := time.NewTicker(c.cfg.Refresh)
		defer ticker.Stop()
		due = ticker.C
	}
	for {
		select {
		case <-due:
		case <-c.refresh:
		case <-c.ctx.Done():
			return
		}
		c.ask()
		if c.wait(c.ctx, c.pause()) != nil {
			return
		}
	}
}

// ask requests the membership from one peer after the other, each at most once, until a peer
// returns a membership that is not older than the known one.
func (c *Client) ask() {
	peer := c.firstPeer()
	for range len(c.peers()) {
		var m api.Membership
		err := c.attempt(c.ctx, trial{}, peer, func(ctx context.Context, caller *rpc.Caller) (err error) {
			m, err = caller.Membership(ctx)
			return err
		})
		if err == nil {
			c.mu.Lock()
			old := m.Index < c.known.index
			c.mu.Unlock()
			c.learn(m)
			if !old {
				return
			}
		}
		if c.wait(c.ctx, c.pause()) != nil {
			return
		}
		peer = c.peerAfter(peer)
	}
}
