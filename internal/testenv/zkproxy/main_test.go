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

// server is the host:port of a real server that all tests share; each test
// works below a node of its own.
var server string

func TestMain(m *testing.M) { goleak.VerifyTestMain(withServer{m}) }

type withServer struct{ m *testing.M }

func (w withServer) Run() int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	e, err := ensemble.Start(ctx, ensemble.Config{Backend: ensemble.Process})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	server = e.Addr(0)
	code := w.m.Run()
	if err := e.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// patience bounds every wait for something that should come soon.
const patience = 10 * time.Second

// How long a client's session lasts without a sign of life. A client whose
// link is dead notices after half to two thirds of it. With a single server in
// its list it then rests for a second before it comes back, too long to be sure
// of keeping a shortSession.
const (
	shortSession = 2 * time.Second
	longSession  = 4 * time.Second // the most that the server grants
)

// bench is what most tests need: a client that goes through a proxy, one that
// does not, and a node for the test.
type bench struct {
	proxy  *zkproxy.Proxy
	conn   *zk.Conn // through the proxy
	events <-chan zk.Event
	direct *zk.Conn
	root   string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{}
	b.direct, _ = connect(t, server)
	var err error
	// Numbered, so that a test can run several times.
	b.root, err = b.direct.Create("/"+t.Name(), nil, zk.FlagSequence, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	b.proxy = newProxy(t, server)
	b.conn, b.events = connect(t, b.proxy.Addr())
	waitSession(t, b.conn)
	return b
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
	conn, own, err := zk.Connect([]string{addr}, timeout,
		zk.WithLogger(log.New(io.Discard, "", 0)),
		zk.WithEventCallback(func(e zk.Event) { events <- e }))
	require.NoError(t, err)
	t.Cleanup(func() {
		conn.Close()
		for range own { // closed when the last goroutine of conn ends
		}
	})
	return conn, events
}

func waitSession(t *testing.T, conn *zk.Conn) {
	t.Helper()
	require.Eventually(t, func() bool { return conn.State() == zk.StateHasSession },
		patience, 5*time.Millisecond)
}

// create begins to create a node through the proxy and gives the outcome when
// there is one.
func (b *bench) create(name string, flags int32) <-chan error {
	outcome := make(chan error, 1)
	go func() {
		_, err := b.conn.Create(b.root+name, nil, flags, zk.WorldACL(zk.PermAll))
		outcome <- err
	}()
	return outcome
}

// exists looks past the proxy.
func (b *bench) exists(t *testing.T, name string) bool {
	t.Helper()
	exists, _, err := b.direct.Exists(b.root + name)
	require.NoError(t, err)
	return exists
}

// receive waits for a value, or for the channel to be closed.
func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

// requirePending fails if something has come already.
func requirePending[T any](t *testing.T, from <-chan T) {
	t.Helper()
	select {
	case v, ok := <-from:
		require.FailNow(t, "came too early", "%v, open: %v", v, ok)
	default:
	}
}
