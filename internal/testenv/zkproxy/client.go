package zkproxy

import (
	"io"
	"log"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// Client is a ZooKeeper client of a test.
type Client struct {
	*zk.Conn
	// Network is the network of the client. It is empty if the client connects to the servers directly.
	Network Network
	// Timeout is the session timeout that the client has requested.
	Timeout time.Duration
}

// Connect connects a client through a network, and waits until the client has a session. When the test ends, it
// closes the client and waits until the goroutines of the client have ended.
func Connect(t testing.TB, timeout time.Duration, servers ...string) *Client {
	t.Helper()
	n := NewNetwork(t, servers...)
	c := DialWith(t, timeout, n, zktest.HostProvider(n.Addrs()...))
	c.WaitSession(t)
	return c
}

// ConnectDirectly is like Connect, without a network that the test can break.
func ConnectDirectly(t testing.TB, timeout time.Duration, servers ...string) *Client {
	t.Helper()
	c := DialWith(t, timeout, nil, zktest.HostProvider(servers...))
	c.WaitSession(t)
	return c
}

// DialWith connects a client through the network n, whose addresses provider supplies. Unlike Connect, it does not
// wait for a session.
func DialWith(t testing.TB, timeout time.Duration, n Network, provider zk.HostProvider) *Client {
	t.Helper()
	// zk.Connect requires an address, although the provider supplies the addresses.
	conn, events, err := zk.Connect([]string{"unused:2181"}, timeout,
		zk.WithHostProvider(provider), zk.WithLogger(log.New(io.Discard, "", 0)))
	require.NoError(t, err)
	t.Cleanup(func() {
		conn.Close()
		n.Cut()            // a client detects Close late during a handshake, so end the connections first
		for range events { // wait until the goroutines of the connection have ended
		}
	})
	return &Client{Conn: conn, Network: n, Timeout: timeout}
}

// WaitSession waits until the client has a session.
func (c *Client) WaitSession(t testing.TB) {
	t.Helper()
	testenv.Eventually(t, func() bool { return c.State() == zk.StateHasSession }, "no session")
}

// WaitConnected waits until the server answers a request. Tests call it after the connection was broken.
func (c *Client) WaitConnected(t testing.TB) {
	t.Helper()
	testenv.Eventually(t, func() bool {
		_, _, err := c.Exists("/")
		return err == nil && c.State() == zk.StateHasSession
	}, "the connection is not restored")
}

// ServerIndex returns the index in Network of the server to which the client is connected. It returns -1 if
// the client is not connected.
func (c *Client) ServerIndex() int { return slices.Index(c.Network.Addrs(), c.Server()) }
