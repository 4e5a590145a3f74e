package zkproxy_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
)

// server is the host:port of the Apache ZooKeeper server of all tests. Each test uses a separate
// znode.
var server string

func TestMain(m *testing.M) { goleak.VerifyTestMain(serverRunner{m}) }

// serverRunner runs the tests while the server runs.
type serverRunner struct{ m *testing.M }

func (r serverRunner) Run() int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	e, err := ensemble.Start(ctx, ensemble.Config{Backend: ensemble.Process})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	server = e.Addr(0)
	code := r.m.Run()
	if err := e.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// waitLimit is how long a test waits for an event that must occur.
const waitLimit = 10 * time.Second

// The timeouts of sessions. A client detects a dead connection after half to two thirds of its
// timeout. With a single server in its list it then waits for a second before it reconnects, so a
// session with the short timeout may expire in the meantime.
const (
	shortSession = 2 * time.Second
	longSession  = 4 * time.Second // the longest that the server grants
)

// harness has a client that connects through a proxy, a client that connects directly, and a
// znode for the test.
type harness struct {
	proxy  *zkproxy.Proxy
	conn   *zk.Conn // through the proxy
	events <-chan zk.Event
	direct *zk.Conn
	root   string
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	h := &harness{}
	h.direct, _ = connect(t, server)
	var err error
	// The znode is sequential, so that a test can run several times.
	h.root, err = h.direct.Create("/"+t.Name(), nil, zk.FlagSequence, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	h.proxy = newProxy(t, server)
	h.conn, h.events = connect(t, h.proxy.Addr())
	waitSession(t, h.conn)
	return h
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
		for range closed { // until the last goroutine of conn has ended
		}
	})
	return conn, events
}

func waitSession(t *testing.T, conn *zk.Conn) {
	t.Helper()
	require.Eventually(t, func() bool { return conn.State() == zk.StateHasSession },
		waitLimit, 5*time.Millisecond)
}

// create creates a znode through the proxy, in the background. The channel receives the result.
func (h *harness) create(name string, flags int32) <-chan error {
	result := make(chan error, 1)
	go func() {
		_, err := h.conn.Create(h.root+name, nil, flags, zk.WorldACL(zk.PermAll))
		result <- err
	}()
	return result
}

// exists reports whether a znode exists. It uses a connection without the proxy.
func (h *harness) exists(t *testing.T, name string) bool {
	t.Helper()
	exists, _, err := h.direct.Exists(h.root + name)
	require.NoError(t, err)
	return exists
}

// receive waits for a value, or until the channel is closed.
func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(waitLimit):
		require.FailNow(t, "timeout")
		panic("unreachable")
	}
}

// requirePending fails if a value is available or the channel is closed.
func requirePending[T any](t *testing.T, from <-chan T) {
	t.Helper()
	select {
	case v, ok := <-from:
		require.FailNow(t, "too early", "%v, open: %v", v, ok)
	default:
	}
}
