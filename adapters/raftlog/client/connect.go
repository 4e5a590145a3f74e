package client

// Authenticated connections to peers.

import (
	"context"
	"net"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/rpc"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// linked returns a function that connects as configured, with an ID that no other client has.
// The error wraps ErrInvalid.
func linked(cfg Config) (connect, error) {
	self := link.Identity{
		Cluster: cfg.Cluster, ID: "client-" + requestid.New().String(),
		Secret: cfg.Secret, TLS: cfg.TLS, Insecure: cfg.Insecure,
	}
	if err := self.Validate(); err != nil {
		return nil, err
	}
	dial := cfg.Dial
	if dial == nil {
		var d net.Dialer
		dial = func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }
	}
	return func(ctx context.Context, p api.Peer, purpose link.Purpose) (rpc.Conn, error) {
		raw, err := dial(ctx, p.Addr)
		if err != nil {
			return nil, err
		}
		conn, err := link.Dial(ctx, raw, self, p.ID, purpose)
		if err != nil {
			return nil, err
		}
		conn.SetTimeouts(0, silence(cfg))
		return conn, nil
	}, nil
}
