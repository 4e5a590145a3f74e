package link

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv/memnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var secret = []byte("the secret of this cluster's own")

func withSecret(id string) Identity {
	return Identity{Cluster: "c1", ID: id, Peer: true, Addr: id + ":7", Claim: claimed(id), Secret: secret}
}

func insecure(id string) Identity {
	return Identity{Cluster: "c1", ID: id, Peer: true, Addr: id + ":7", Claim: claimed(id), Insecure: true}
}

// pair is a connection in memory: the dialing end, and the accepting one.
func pair(t testing.TB) (net.Conn, net.Conn) {
	t.Helper()
	network := memnet.New()
	l, err := network.Listen("b:7")
	require.NoError(t, err)
	defer l.Close()
	near, err := network.Dial(t.Context(), "a:7", "b:7")
	require.NoError(t, err)
	far, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

// tcp is a connection over loopback.
func tcp(t testing.TB) (net.Conn, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	far, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

type result struct {
	conn *Conn
	err  error
}

// accepting runs Accept, whose result is waited for.
func accepting(t testing.TB, conn net.Conn, self Identity, accepts ...func(Hello) error) func() result {
	t.Helper()
	results := make(chan result, 1)
	go func() {
		c, err := Accept(context.Background(), conn, self, accepts...)
		results <- result{c, err}
	}()
	return func() result {
		r := <-results
		if r.conn != nil {
			t.Cleanup(func() { r.conn.Close() })
		}
		return r
	}
}

// connect has two sides meet, and says how both find it.
func connect(t testing.TB, near, far net.Conn, dials, accepts Identity, want string, purpose Purpose) (result, result) {
	t.Helper()
	accepted := accepting(t, far, accepts)
	c, err := Dial(t.Context(), near, dials, want, purpose)
	if c != nil {
		t.Cleanup(func() { c.Close() })
	}
	return result{c, err}, accepted()
}

// linked is a connection that is made.
func linked(t testing.TB, near, far net.Conn, dials, accepts Identity) (*Conn, *Conn) {
	t.Helper()
	d, a := connect(t, near, far, dials, accepts, accepts.ID, PurposeRaft)
	require.NoError(t, d.err)
	require.NoError(t, a.err)
	return d.conn, a.conn
}

func requireReason(t testing.TB, err error, reason Reason) {
	t.Helper()
	var refused *RefusedError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, reason, refused.Reason, "%v", err)
}

// soon waits for what must not take long, on a real clock.
func soon[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(30 * time.Second):
		require.Fail(t, "nothing has come")
		panic("not reached")
	}
}

func claimed(id string) Claim {
	return Claim{Founding: "founding", Instance: "data of " + id, Start: 3, Process: "process of " + id}
}
