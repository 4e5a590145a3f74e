package raftlog

import (
	"context"
	"fmt"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/rpc"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/snapshot"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/transport"
)

// joinCluster fetches a snapshot from the first configured peer that provides one, and retries until
// JoinTimeout.
func (n *Node) joinCluster() (*snapshot.Reader, error) {
	ctx, cancel := context.WithTimeout(n.ctx, n.cfg.JoinTimeout)
	defer cancel()
	if err := n.checkRefusals(); err != nil {
		return nil, err
	}
	err := error(nil)
	logged := map[api.Peer]string{}
	for {
		for _, p := range n.cfg.Peers {
			r, e := n.fetchSnapshot(ctx, p)
			if e == nil {
				n.joined = true
				n.log.Info("received the snapshot of the cluster", "from", p.ID, "index", r.Meta().Index)
				return r, nil
			}
			if fatal := n.fatalRefusal(p.ID, e); fatal != nil {
				return nil, fatal
			}
			if ctx.Err() == nil || err == nil {
				err = fmt.Errorf("raftlog: peer %s is not an initial voter, and none of the configured peers has provided the snapshot of the cluster within the join timeout of %v: start a majority of the voters, or correct their addresses; the last attempt, at %v: %w",
					n.cfg.ID, n.cfg.JoinTimeout, p, e)
			}
			if text := e.Error(); ctx.Err() == nil && text != logged[p] {
				logged[p] = text
				n.log.Warn("no snapshot to join the cluster: retrying", "from", p.ID, "addr", p.Addr, "err", e)
			}
		}
		pause := time.NewTimer(n.cfg.ElectionTimeout)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, err
		}
	}
}

// fetchSnapshot receives a snapshot from one peer. This peer then belongs to the cluster of p. It
// returns an error if p sends nothing for half of JoinTimeout. This limit is long because p reads and
// verifies its snapshot before it sends it.
func (n *Node) fetchSnapshot(ctx context.Context, p api.Peer) (*snapshot.Reader, error) {
	l, err := n.dialPeer(ctx, p)
	if err != nil {
		return nil, err
	}
	if l.Remote().Claim.Founding == "" {
		l.Close()
		return nil, fmt.Errorf("%w: peer %v has not joined a cluster itself", api.ErrRefused, p)
	}
	s, err := rpc.Snapshot(ctx, l, n.cfg.JoinTimeout/2)
	if err != nil {
		return nil, err
	}
	defer s.Data.Close()
	r, err := snapshot.Install(n.fs, ".", s.Data)
	if err == nil {
		n.owner.Founding, n.owner.Founders = l.Remote().Claim.Founding, l.Remote().Claim.Founders
	}
	return r, err
}

// dialPeer connects to a peer like a client that requests a stream, with the identity of this peer.
func (n *Node) dialPeer(ctx context.Context, p api.Peer) (*link.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, transport.DialTimeout) // short enough to try several peers within JoinTimeout
	defer cancel()
	conn, err := n.cfg.Dial(ctx, p.Addr)
	if err != nil {
		return nil, err
	}
	return link.Dial(ctx, conn, n.ownIdentity(), p, link.PurposeStream)
}
