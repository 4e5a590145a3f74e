package client

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/rpc"
)

// conn is the connection that all calls to a peer share, or the attempt to establish it.
type conn struct {
	startedAt time.Time
	ready     chan struct{} // closed when caller or err is set
	caller    *rpc.Caller
	err       error
}

// closedErr returns the reason why the attempt to connect has failed or the connection has ended. It returns
// nil while the client connects or is connected.
func (k *conn) closedErr() error {
	select {
	case <-k.ready:
	default:
		return nil
	}
	if k.err != nil {
		return k.err
	}
	return k.caller.Err()
}

// connectedCaller returns a caller with a connection to p. It dials a peer at most once within half of
// RetryPause. If an attempt that started within this time has failed, or its connection has ended,
// connectedCaller returns that error.
func (c *Client) connectedCaller(ctx context.Context, p api.Peer) (*rpc.Caller, error) {
	c.mu.Lock()
	k := c.conns[p]
	if k != nil {
		if err := k.closedErr(); err != nil {
			if time.Since(k.startedAt) < c.cfg.RetryPause/2 {
				c.mu.Unlock()
				return nil, err
			}
			k = nil
		}
	}
	if k == nil {
		if c.closed {
			c.mu.Unlock()
			return nil, context.Cause(c.ctx)
		}
		k = &conn{startedAt: time.Now(), ready: make(chan struct{})}
		c.conns[p] = k
		c.goroutines.Go(func() { c.maintainConn(k, p) })
	}
	c.mu.Unlock()
	select {
	case <-k.ready:
		return k.caller, k.err
	case <-ctx.Done():
		return nil, fmt.Errorf("connect to peer %v: %w", p, context.Cause(ctx))
	}
}

// maintainConn connects to the peer, and then closes the connection as soon as the peer does not respond any
// more or the client is closed.
func (c *Client) maintainConn(k *conn, p api.Peer) {
	conn, err := c.dial(c.ctx, p, link.PurposeClient)
	if err != nil {
		k.err = err
		close(k.ready)
		return
	}
	k.caller = rpc.NewCaller(conn)
	close(k.ready)
	defer k.caller.Close()
	for {
		if c.sleep(c.ctx, c.cfg.CallTimeout) != nil {
			return
		}
		ctx, cancel := context.WithTimeout(c.ctx, c.cfg.idleTimeout())
		err := k.caller.Alive(ctx)
		cancel()
		if err != nil {
			return
		}
	}
}

// dial connects to a peer within CallTimeout. After Close it returns an error.
func (c *Client) dial(ctx context.Context, p api.Peer, purpose link.Purpose) (rpc.Conn, error) {
	if c.ctx.Err() != nil {
		return nil, context.Cause(c.ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	conn, err := c.dialer(ctx, p, purpose)
	if err != nil {
		return nil, fmt.Errorf("connect to peer %v: %w", p, err)
	}
	return conn, nil
}

// newDialFunc returns a function that makes authenticated connections with a new client ID. The
// error wraps ErrInvalid.
func newDialFunc(cfg Config) (dialFunc, error) {
	self := link.Identity{
		Cluster: cfg.Cluster, ID: "client-" + api.NewRequestID().String(),
		ClientSecret: cfg.Secret, TLS: cfg.TLS, PeerNames: cfg.AllowedNames, Insecure: cfg.Insecure,
	}
	if cfg.GetSecret != nil {
		self.Secrets = func() api.Secrets { return api.Secrets{Clients: [][]byte{cfg.GetSecret()}} }
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
		conn, err := link.Dial(ctx, raw, self, p, purpose)
		if err != nil {
			return nil, err
		}
		conn.SetTimeouts(0, cfg.idleTimeout())
		return conn, nil
	}, nil
}
