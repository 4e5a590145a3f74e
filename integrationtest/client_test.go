package integrationtest

import (
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/integrationtest/internal/harness"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
)

const (
	// sessionTimeout is the timeout of most sessions. It is so long that servers which do not
	// answer for some seconds, on a busy machine, end neither sessions nor leases.
	sessionTimeout = 20 * time.Second
	// shortTimeout is the timeout of sessions in tests that let a session or a lease expire, or
	// that check that something takes less time than that.
	shortTimeout = 4 * time.Second
	// resignLimit is longer than what may wait for ZooKeeper's confirmation for a second and a half
	// takes on a machine that stands still for as long, and shorter than a session lives.
	resignLimit = shortTimeout - shortTimeout/8
	// quietTime is how long a test looks for what must not come.
	quietTime = 300 * time.Millisecond
)

type client = harness.Client

// connect connects a client to the shared server.
func connect(t testing.TB) *client {
	t.Helper()
	return harness.Connect(t, sessionTimeout, shared.Addr(0))
}

// connectShort is connect with a short session timeout.
func connectShort(t testing.TB) *client {
	t.Helper()
	return harness.Connect(t, shortTimeout, shared.Addr(0))
}

// connectDirectly is connect without a network that the test can break, for tests that send many
// requests.
func connectDirectly(t testing.TB) *client {
	t.Helper()
	return harness.ConnectDirectly(t, sessionTimeout, shared.Addr(0))
}

// connectWithoutPause connects a client that reconnects immediately: it has several addresses of the
// shared server, and the client library pauses for a second only after it has tried all addresses.
func connectWithoutPause(t testing.TB, timeout time.Duration) *client {
	t.Helper()
	return connectTo(t, timeout, shared.Addr(0), shared.Addr(0), shared.Addr(0))
}

// connectTo connects a client to one of the servers, in the given order. The servers may be stopped.
func connectTo(t testing.TB, timeout time.Duration, addrs ...string) *client {
	t.Helper()
	c := harness.Connect(t, timeout, addrs...)
	c.Network.DelayReplies()
	return c
}

// addrsFrom gives the servers' addresses beginning with that of server i.
func addrsFrom(e *ensemble.Ensemble, i int) []string {
	addrs := e.Addrs()
	return append(addrs[i:len(addrs):len(addrs)], addrs[:i]...)
}
