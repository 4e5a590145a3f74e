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
	// shortTimeout is the timeout of sessions in tests in which a session or a lease expires, or in which
	// an action must take less time.
	shortTimeout = 4 * time.Second
	// resignLimit is the time in which Resign must return. It waits for the confirmation for 1.5 s. The
	// limit is longer, because the machine may be busy, and shorter than the timeout of a session.
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

// connectTo connects a client to one of the servers, in the given order. The servers may be stopped.
func connectTo(t testing.TB, timeout time.Duration, addrs ...string) *client {
	t.Helper()
	c := zkproxy.Connect(t, timeout, addrs...)
	c.Network.DelayReplies()
	return c
}
