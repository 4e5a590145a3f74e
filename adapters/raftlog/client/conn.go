package client

// Connections: one for all calls to a peer, which is made when a call needs it, and one for each
// stream.

import (
	"context"
	"fmt"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/rpc"
)

// conn is a connection for calls, or an attempt to make one.
type conn struct {
	begun  time.Time
	made   chan struct{} // closed when caller or err is set
	caller *rpc.Caller
	err    error
}

// over returns the reason why the connection does not exist or has ended. It returns nil while the
// connection is used or being made.
func (k *conn) over() error {
	select {
	case <-k.made:
	default:
		return nil
	}
	if k.err != nil {
		return k.err
	}
	return k.caller.Err()
}

// to returns the connection to p. A peer is dialed at most once within half of RetryPause. Before
// that has passed, to returns the error of the last attempt.
func (c *Client) to(ctx context.Context, p api.Peer) (*rpc.Caller, error) {
	c.mu.Lock()
	k := c.conns[p]
	if k != nil {
		if err := k.over(); err != nil {
			if time.Since(k.begun) < c.cfg.RetryPause/2 {
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
		k = &conn{begun: time.Now(), made: make(chan struct{})}
		c.conns[p] = k
		c.running.Go(func() { c.run(k, p) })
	}
	c.mu.Unlock()
	select {
	case <-k.made:
		return k.caller, k.err
	case <-ctx.Done():
		return nil, fmt.Errorf("connect to peer %v: %w", p, context.Cause(ctx))
	}
}

// run makes the connection, and checks that the peer is alive until the connection ends.
func (c *Client) run(k *conn, p api.Peer) {
	conn, err := c.dial(c.ctx, p, link.PurposeClient)
	if err != nil {
		k.err = err
		close(k.made)
		return
	}
	k.caller = rpc.NewCaller(conn)
	close(k.made)
	defer k.caller.Close()
	for {
		if err := c.rest(k.caller, c.cfg.CallTimeout); err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(c.ctx, silence(c.cfg))
		err := k.caller.Alive(ctx)
		cancel()
		if err != nil {
			return
		}
	}
}

// dial connects to a peer within CallTimeout. After Close it returns the cause.
func (c *Client) dial(ctx context.Context, p api.Peer, purpose link.Purpose) (rpc.Conn, error) {
	if c.ctx.Err() != nil {
		return nil, context.Cause(c.ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	conn, err := c.connect(ctx, p, purpose)
	if err != nil {
		return nil, fmt.Errorf("connect to peer %v: %w", p, err)
	}
	return conn, nil
}

// rest waits for the time d. It returns an error if the connection ends before.
func (c *Client) rest(caller *rpc.Caller, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-caller.Done():
		return caller.Err()
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
}
