package zktest_test

import (
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func connectFrom(t *testing.T, c *zktest.Ensemble, server int, timeout time.Duration) (*zk.Conn, <-chan zk.Event) {
	t.Helper()
	events, option := allEvents()
	conn, _, err := c.ConnectFrom(server, timeout, option)
	require.NoError(t, err)
	waitState(t, events, zk.StateHasSession)
	return conn, events
}

var openACL = zk.WorldACL(zk.PermAll)

// allEvents returns a channel, and an option of zk.Connect that makes the channel receive all events of the
// client. The client's own channel has a capacity of only six events, and a client that is refused exceeds this by
// its attempts to connect.
func allEvents() (<-chan zk.Event, func(*zk.Conn)) {
	events := make(chan zk.Event, 10000)
	return events, zk.WithEventCallback(func(ev zk.Event) { events <- ev })
}

// connect returns a client that has a session.
func connect(t *testing.T, s *zktest.Server, timeout time.Duration) (*zk.Conn, <-chan zk.Event) {
	t.Helper()
	events, option := allEvents()
	c, _, err := s.Connect(timeout, option)
	require.NoError(t, err)
	waitState(t, events, zk.StateHasSession)
	return c, events
}

func waitState(t *testing.T, events <-chan zk.Event, want zk.State) {
	t.Helper()
	limit := time.After(time.Minute)
	for {
		select {
		case ev, ok := <-events:
			require.True(t, ok, "the client was closed before the state %v", want)
			if ev.Type == zk.EventSession && ev.State == want {
				return
			}
		case <-limit:
			t.Fatalf("the client does not reach the state %v within a minute", want)
		}
	}
}

func mustCreate(t *testing.T, c *zk.Conn, path, data string, flags int32) string {
	t.Helper()
	p, err := c.Create(path, []byte(data), flags, openACL)
	require.NoError(t, err, "create %s", path)
	return p
}

func tcpDialer(_, addr string, timeout time.Duration) (net.Conn, error) {
	return net.DialTimeout("tcp", addr, timeout)
}

// assertExists marks the test as failed if a client cannot read whether the znode exists, or if the
// result differs from want.
func assertExists(t testing.TB, want bool, c *zk.Conn, path, when string) {
	t.Helper()
	exists, _, err := c.Exists(path)
	assert.NoError(t, err, when)
	assert.Equal(t, want, exists, "%s exists: %s", path, when)
}
