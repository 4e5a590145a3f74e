package zktest_test

import (
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zktest"
)

func connectFrom(t *testing.T, c *zktest.Ensemble, server int, timeout time.Duration) (*zk.Conn, <-chan zk.Event) {
	t.Helper()
	events, tell := allEvents()
	conn, _, err := c.ConnectFrom(server, timeout, tell)
	if err != nil {
		t.Fatal(err)
	}
	waitState(t, events, zk.StateHasSession)
	return conn, events
}

var open = zk.WorldACL(zk.PermAll)

// allEvents is the client's events without loss: its own channel holds six, and a
// client that is refused fills that with attempts.
func allEvents() (<-chan zk.Event, func(*zk.Conn)) {
	events := make(chan zk.Event, 10000)
	return events, zk.WithEventCallback(func(ev zk.Event) { events <- ev })
}

// connect gives a client with a session.
func connect(t *testing.T, s *zktest.Server, timeout time.Duration) (*zk.Conn, <-chan zk.Event) {
	t.Helper()
	events, tell := allEvents()
	c, _, err := s.Connect(timeout, tell)
	if err != nil {
		t.Fatal(err)
	}
	waitState(t, events, zk.StateHasSession)
	return c, events
}

func waitState(t *testing.T, events <-chan zk.Event, want zk.State) {
	t.Helper()
	late := time.After(time.Minute)
	for {
		select {
		case ev, ok := <-events:
			if !ok {
				t.Fatalf("the client ended before it was %v", want)
			}
			if ev.Type == zk.EventSession && ev.State == want {
				return
			}
		case <-late:
			t.Fatalf("not %v after a minute", want)
		}
	}
}

func mustCreate(t *testing.T, c *zk.Conn, path, data string, flags int32) string {
	t.Helper()
	p, err := c.Create(path, []byte(data), flags, open)
	if err != nil {
		t.Fatalf("create %s: %v", path, err)
	}
	return p
}

func tcpDialer(_, addr string, timeout time.Duration) (net.Conn, error) {
	return net.DialTimeout("tcp", addr, timeout)
}
