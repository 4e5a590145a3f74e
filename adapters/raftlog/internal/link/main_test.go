package link

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	memory "github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	secret       = []byte("the secret of this cluster")
	clientSecret = []byte("the secret of its clients")
)

// peerB is the peer to which tests connect. Its address differs from the address of a connection over
// loopback.
var peerB = api.Peer{ID: "b", Addr: "b:7"}

func secretIdentity(id string) Identity {
	return Identity{Cluster: "c1", ID: id, Peer: true, Addr: id + ":7", Claim: testClaim(id), Secret: secret, ClientSecret: clientSecret, AddrsOf: testAddrs}
}

func insecureIdentity(id string) Identity {
	return Identity{Cluster: "c1", ID: id, Peer: true, Addr: id + ":7", Claim: testClaim(id), Insecure: true}
}

// memoryPair returns the dialing side and the accepting side of a connection in memory.
func memoryPair(t testing.TB) (net.Conn, net.Conn) {
	t.Helper()
	network := memory.NewNetwork()
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

// tcpPair returns both sides of a TCP connection over loopback.
func tcpPair(t testing.TB) (net.Conn, net.Conn) {
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

// endResult is the result of a handshake on one side of the connection.
type endResult struct {
	conn *Conn
	err  error
}

// startAccept calls Accept in a goroutine. The returned function waits for the result of Accept.
func startAccept(t testing.TB, conn net.Conn, self Identity, accepts ...func(Hello) error) func() endResult {
	t.Helper()
	results := make(chan endResult, 1)
	go func() {
		c, err := Accept(context.Background(), conn, self, accepts...)
		results <- endResult{c, err}
	}()
	return func() endResult {
		r := <-results
		if r.conn != nil {
			t.Cleanup(func() { r.conn.Close() })
		}
		return r
	}
}

// pairFunc returns the dialing and the accepting side of a connection, like memoryPair and tcpPair.
type pairFunc func(testing.TB) (near, far net.Conn)

// pairOf returns a pairFunc that returns the given sides of a connection.
func pairOf(near, far net.Conn) pairFunc {
	return func(testing.TB) (net.Conn, net.Conn) { return near, far }
}

// connect executes a handshake on a new connection, and returns the results of the dialing side and of
// the accepting side.
func connect(t testing.TB, pair pairFunc, dials, accepts Identity, want string, purpose Purpose) (endResult, endResult) {
	t.Helper()
	near, far := pair(t)
	accepted := startAccept(t, far, accepts)
	c, err := Dial(t.Context(), near, dials, api.Peer{ID: want, Addr: peerB.Addr}, purpose)
	if c != nil {
		t.Cleanup(func() { c.Close() })
	}
	return endResult{c, err}, accepted()
}

// connectPair executes a handshake on a new connection, requires that it succeeds, and returns both
// sides.
func connectPair(t testing.TB, pair pairFunc, dials, accepts Identity) (*Conn, *Conn) {
	t.Helper()
	d, a := connect(t, pair, dials, accepts, accepts.ID, PurposeRaft)
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

// requireFrame requires that the next frame of a connection contains the given text.
func requireFrame(t testing.TB, c *Conn, text string) {
	t.Helper()
	frame, err := c.ReadFrame()
	require.NoError(t, err)
	require.Equal(t, text, string(frame))
}

func testClaim(id string) Claim {
	return Claim{Founding: "founding", Instance: "data of " + id, Start: 3, Process: "process of " + id}
}

// authenticationModes returns the ways to authenticate processes: each is a function that returns the
// identity of the peer with the given ID.
func authenticationModes(t testing.TB) map[string]func(id string) Identity {
	ours := newAuthority(t)
	return map[string]func(string) Identity{
		"secret":   secretIdentity,
		"insecure": insecureIdentity,
		"TLS":      ours.identity,
		"both": func(id string) Identity {
			i := ours.identity(id)
			i.Secret, i.ClientSecret = secret, clientSecret
			return i
		},
	}
}

// recordingConn is a connection that records all bytes that are read from it and written to it.
type recordingConn struct {
	net.Conn
	mu      sync.Mutex
	written bytes.Buffer
	read    bytes.Buffer
}

// connPair returns both sides of a connection like memoryPair, and records the bytes of the dialing
// side in r.
func (r *recordingConn) connPair(t testing.TB) (net.Conn, net.Conn) {
	t.Helper()
	near, far := memoryPair(t)
	r.Conn = near
	return r, far
}

func (r *recordingConn) Write(p []byte) (int, error) {
	n, err := r.Conn.Write(p)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.written.Write(p[:n])
	return n, err
}

func (r *recordingConn) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read.Write(p[:n])
	return n, err
}

// authority is a certificate authority that a user operates.
type authority struct{ ca *testenv.Authority }

func newAuthority(t testing.TB) authority { return authority{testenv.NewAuthority(t)} }

// identity returns the identity of the peer with the given ID, with a certificate for the host of the
// peer.
func (a authority) identity(id string) Identity {
	return Identity{Cluster: "c1", ID: id, Peer: true, Addr: id + ":7", Claim: testClaim(id), TLS: a.ca.Config(id), AddrsOf: testAddrs}
}

// testAddrs implements Identity.AddrsOf and returns an address for every ID.
func testAddrs(id string) []string { return []string{id + ":7"} }

// asClient returns the identity of a client that has the credentials which the peer i accepts from
// clients.
func asClient(i Identity) Identity {
	i.Peer, i.Addr, i.Claim, i.Secret = false, "", Claim{}, nil
	return i
}
