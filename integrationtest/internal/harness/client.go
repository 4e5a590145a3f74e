package harness

import (
	"io"
	"log"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// Client is a ZooKeeper client of a test.
type Client struct {
	*zk.Conn
	// Network is the network of the client. It is empty if the client is connected directly.
	Network Network
	// Timeout is the session timeout that the client has requested.
	Timeout time.Duration
}

// Connect connects a client through a network, and waits until it has a session. The client is
// closed when the test ends, and the test waits until its goroutines have ended.
func Connect(t testing.TB, timeout time.Duration, servers ...string) *Client {
	t.Helper()
	n := NewNetwork(t, servers...)
	c := DialWith(t, timeout, n, InOrder(n.Addrs()))
	c.WaitSession(t)
	return c
}

// ConnectDirectly is like Connect, without a network that the test can break.
func ConnectDirectly(t testing.TB, timeout time.Duration, servers ...string) *Client {
	t.Helper()
	c := DialWith(t, timeout, nil, InOrder(servers))
	c.WaitSession(t)
	return c
}

// DialWith is like Connect, with a network and a host provider for its addresses, but does not wait for
// a session.
func DialWith(t testing.TB, timeout time.Duration, n Network, provider zk.HostProvider) *Client {
	t.Helper()
	// The provider ignores the addresses, but there must be one.
	conn, events, err := zk.Connect([]string{"unused:2181"}, timeout,
		zk.WithHostProvider(provider), zk.WithLogger(log.New(io.Discard, "", 0)))
	require.NoError(t, err)
	t.Cleanup(func() {
		conn.Close()
		n.Cut()            // during a handshake the client detects Close late
		for range events { // until the goroutines of the connection have ended
		}
	})
	return &Client{Conn: conn, Network: n, Timeout: timeout}
}

// WaitSession waits until the client has a session.
func (c *Client) WaitSession(t testing.TB) {
	t.Helper()
	Eventually(t, func() bool { return c.State() == zk.StateHasSession }, "no session")
}

// WaitConnected waits until the server answers a request, after the connection was broken.
func (c *Client) WaitConnected(t testing.TB) {
	t.Helper()
	Eventually(t, func() bool {
		_, _, err := c.Exists("/")
		return err == nil && c.State() == zk.StateHasSession
	}, "the connection is not restored")
}

// ServerIndex returns the index in Network of the server to which the client is connected, or -1.
func (c *Client) ServerIndex() int { return slices.Index(c.Network.Addrs(), c.Server()) }

// InOrder returns a host provider that tries the servers in the given order. The client library
// shuffles them.
func InOrder(servers []string) zk.HostProvider { return &inOrder{servers: servers} }

type inOrder struct {
	servers []string

	mu       sync.Mutex
	at, last int
}

func (h *inOrder) Init([]string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at, h.last = -1, -1
	return nil
}

func (h *inOrder) Len() int { return len(h.servers) }

// Next sets retryStart if all servers were tried since the last success.
func (h *inOrder) Next() (server string, retryStart bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at = (h.at + 1) % len(h.servers)
	retryStart = h.at == h.last
	if h.last == -1 {
		h.last = 0
	}
	return h.servers[h.at], retryStart
}

func (h *inOrder) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = h.at
}
