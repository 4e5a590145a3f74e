package integrationtest

import (
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
)

const (
	// sessionTimeout is the timeout of most sessions. It is so long that sessions and leases do not expire
	// if the servers of a busy machine do not answer for some seconds.
	sessionTimeout = 20 * time.Second
	// shortTimeout is the session timeout in tests that wait for the expiry of a session or a lease, or that require
	// an action to take less time than that.
	shortTimeout = 4 * time.Second
	// resignLimit is the time in which Resign must return. Resign waits for the confirmation for 1.5 s. The limit is
	// longer, because the machine may be busy, and shorter than the timeout of a session.
	resignLimit = shortTimeout - shortTimeout/8
	// quietTime is how long a test waits for an event that must not occur.
	quietTime = 300 * time.Millisecond
)

type client = zkproxy.Client

// connect connects a client to the shared server.
func connect(t testing.TB) *client {
	t.Helper()
	return zkproxy.Connect(t, sessionTimeout, shared.Addr(0))
}

// connectShort connects a client with a short session timeout to the shared server.
func connectShort(t testing.TB) *client {
	t.Helper()
	return zkproxy.Connect(t, shortTimeout, shared.Addr(0))
}

// connectDirectly connects a client to the shared server without a proxy, for tests that send many
// requests and do not break the network.
func connectDirectly(t testing.TB) *client {
	t.Helper()
	return zkproxy.ConnectDirectly(t, sessionTimeout, shared.Addr(0))
}

// connectTo connects a client that tries the given servers in this order. The servers may be down.
func connectTo(t testing.TB, timeout time.Duration, addrs ...string) *client {
	t.Helper()
	c := zkproxy.Connect(t, timeout, addrs...)
	c.Network.DelayReplies()
	return c
}
