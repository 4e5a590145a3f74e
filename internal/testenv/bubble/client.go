package bubble

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// Client is a client that a test can cut off from its server, as a partition of the network does.
type Client struct {
	Conn *zk.Conn
	srv  *zktest.Server

	mu  sync.Mutex
	cut bool
}

// NewClient connects a client. It does not wait until the session is established.
func NewClient(srv *zktest.Server, timeout time.Duration, options ...func(*zk.Conn)) (*Client, error) {
	c := &Client{srv: srv}
	conn, _, err := srv.Connect(timeout, append(options, zk.WithDialer(c.dial))...)
	if err != nil {
		return nil, err
	}
	c.Conn = conn
	return c, nil
}

func (c *Client) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return nil, fmt.Errorf("dial %s: the client is cut off", address)
	}
	return c.srv.Dialer()(network, address, timeout)
}

// SetCut cuts the client off from its server if on is true, and connects it again otherwise. While the client is cut
// off, no message passes, and the client cannot open another connection.
func (c *Client) SetCut(on bool) {
	c.mu.Lock()
	c.cut = on
	c.mu.Unlock()
	if id := c.Conn.SessionID(); on {
		c.srv.Blackhole(zktest.BothWays, id)
	} else {
		c.srv.Heal(id)
	}
}
