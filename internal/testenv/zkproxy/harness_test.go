package zkproxy_test

import (
	"io"
	"log"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The session timeouts of clients. A client detects a dead connection after half to two thirds of its timeout. A
// client with a single server then waits for a second before it reconnects, so a session with the short timeout may
// expire in the meantime.
const (
	shortSession = 4 * time.Second
	longSession  = 20 * time.Second // the longest timeout that the server grants
)

// node is the path of a znode that exists in each test.
const node = "/n"

// proxiedTest is a test with a server and a proxy. Conn connects through the proxy, and Operator connects directly.
type proxiedTest struct {
	*bubble.Test
	proxy  *zkproxy.Proxy
	events <-chan zk.Event // the events of Conn
}

func newProxied(t *testing.T) *proxiedTest {
	t.Helper()
	h := &proxiedTest{Test: &bubble.Test{T: t, Server: startServer(t)}}
	h.Operator, _ = connectFor(t, h.Server.Addr(), longSession)
	_, err := h.Operator.Create(node, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	h.proxy = newProxy(t, h.Server.Addr())
	h.Conn, h.events = connect(t, h.proxy.Addr())
	waitSession(t, h.Conn)
	return h
}

func startServer(t *testing.T) *zktest.Server {
	return zktest.Start(t, zktest.WithSessionTimeouts(shortSession, longSession))
}

func newProxy(t *testing.T, target string) *zkproxy.Proxy {
	t.Helper()
	p, err := zkproxy.New(target)
	require.NoError(t, err)
	t.Cleanup(func() {
		p.Close()
		if t.Failed() {
			for _, r := range p.Log() {
				t.Log(r)
			}
		}
	})
	return p
}

func connect(t *testing.T, addr string) (*zk.Conn, <-chan zk.Event) {
	t.Helper()
	return connectFor(t, addr, shortSession)
}

func connectFor(t *testing.T, addr string, timeout time.Duration) (*zk.Conn, <-chan zk.Event) {
	t.Helper()
	events := make(chan zk.Event, 1000)
	conn, closed, err := zk.Connect([]string{addr}, timeout,
		zk.WithLogger(log.New(io.Discard, "", 0)),
		zk.WithEventCallback(func(e zk.Event) { events <- e }))
	require.NoError(t, err)
	t.Cleanup(func() {
		conn.Close()
		for range closed { // wait until the last goroutine of the connection has ended
		}
	})
	return conn, events
}

func waitSession(t *testing.T, conn *zk.Conn) {
	t.Helper()
	require.Eventually(t, func() bool { return conn.State() == zk.StateHasSession },
		testenv.WaitLimit, 5*time.Millisecond)
}

// create creates a znode through the proxy in the background. The channel receives the error of the create.
func (h *proxiedTest) create(name string, flags int32) <-chan error {
	result := make(chan error, 1)
	go func() {
		_, err := h.Conn.Create(name, nil, flags, zk.WorldACL(zk.PermAll))
		result <- err
	}()
	return result
}

// exists reports whether a znode exists. It uses a connection without the proxy.
func (h *proxiedTest) exists(t *testing.T, name string) bool {
	t.Helper()
	exists, _, err := h.Operator.Exists(name)
	require.NoError(t, err)
	return exists
}

// receive waits until it receives a value from the channel, or until the channel is closed.
func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(testenv.WaitLimit):
		require.FailNow(t, "timeout")
		panic("unreachable")
	}
}

// requirePending fails the test if the channel contains a value or is closed.
func requirePending[T any](t *testing.T, from <-chan T) {
	t.Helper()
	select {
	case v, ok := <-from:
		require.FailNow(t, "too early", "%v, open: %v", v, ok)
	default:
	}
}
