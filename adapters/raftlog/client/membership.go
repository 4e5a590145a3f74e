package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/rpc"
)

// Membership returns the peers of the cluster according to the peer that has answered: the leader if it
// is known and answers, otherwise any peer. If the peer was removed from the cluster, only the
// addresses of the other peers are used. Membership retries until ctx is done. The error wraps the
// cause of ctx, [api.ErrRefused] if all peers reject the client, or [api.ErrClosed].
func (c *Client) Membership(ctx context.Context) (m api.Membership, err error) {
	var removed error
	err = c.callAnyPeer(ctx, request{description: "query membership"}, func(ctx context.Context, caller *rpc.Caller) (err error) {
		if m, err = caller.Membership(ctx); err != nil {
			return err
		}
		c.learnMembership(m)
		if len(m.Removed) == 0 {
			return nil
		}
		info, err := caller.Info(ctx)
		if err == nil && slices.Contains(m.Removed, info.Peer.ID) {
			// Ask another peer, which may have a newer membership.
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

// learnMembership updates the list of peers from a membership, and forgets connections that have ended.
func (c *Client) learnMembership(m api.Membership) {
	c.mu.Lock()
	c.list.update(m)
	for p, k := range c.conns {
		if k.closedErr() != nil && time.Since(k.startedAt) > c.cfg.RetryPause {
			delete(c.conns, p)
		}
	}
	c.mu.Unlock()
}

// refreshMembership queries the membership at the interval Refresh, and after each call of requestRefresh,
// until the client is closed. It pauses after each query.
func (c *Client) refreshMembership() {
	var due <-chan time.Time
	if c.cfg.Refresh > 0 {
		ticker := time.NewTicker(c.cfg.Refresh)
		defer ticker.Stop()
		due = ticker.C
	}
	for {
		select {
		case <-due:
		case <-c.refreshRequests:
		case <-c.ctx.Done():
			return
		}
		c.queryMembership()
		if c.sleep(c.ctx, c.randomPause()) != nil {
			return
		}
	}
}

// queryMembership queries each peer at most once, until a peer returns a membership that is not older than the
// membership that the client knows.
func (c *Client) queryMembership() {
	peer := c.firstPeer()
	for range len(c.peers()) {
		var m api.Membership
		err := c.callPeer(c.ctx, request{}, peer, func(ctx context.Context, caller *rpc.Caller) (err error) {
			m, err = caller.Membership(ctx)
			return err
		})
		if err == nil {
			c.mu.Lock()
			old := m.Index < c.list.index
			c.mu.Unlock()
			c.learnMembership(m)
			if !old {
				return
			}
		}
		if c.sleep(c.ctx, c.randomPause()) != nil {
			return
		}
		peer = c.nextPeer(peer)
	}
}

// requestRefresh makes refreshMembership query the membership soon. It does not wait for the result.
func (c *Client) requestRefresh() {
	select {
	case c.refreshRequests <- struct{}{}:
	default:
	}
}
