package raftlog_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/client"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// memoryDir returns a directory in memory if the system has one. A peer starts an election if the
// leader has not sent for two election timeouts, and one sync of a busy disk may take that long.
func memoryDir(t testing.TB) string {
	t.Helper()
	dir, err := testenv.MakeDir("raftlog")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// startTCPCluster starts n peers on the loopback interface, and returns them and their nodes. It calls
// configure to set the authentication in the configuration of each peer.
func startTCPCluster(t testing.TB, n int, configure func(c *raftlog.Config)) ([]api.Peer, []*raftlog.Node) {
	t.Helper()
	var peers []api.Peer
	var listeners []net.Listener
	for i := range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		listeners = append(listeners, l)
		peers = append(peers, api.Peer{ID: fmt.Sprint("p", i), Addr: l.Addr().String()})
	}
	var nodes []*raftlog.Node
	for i, p := range peers {
		c := raftlog.Config{
			Cluster: "tcp", ID: p.ID, Addr: p.Addr, Peers: peers, Dir: memoryDir(t), Listener: listeners[i],
			ElectionTimeout: time.Second, StateMachine: &recorder{},
		}
		configure(&c)
		node, err := raftlog.Open(c.InFiles(1 << 20))
		require.NoError(t, err)
		t.Cleanup(func() { node.Close() })
		nodes = append(nodes, node)
	}
	return peers, nodes
}

// TestSecret_RequiredForAccess checks that peers reject a client or peer with another secret or cluster name,
// and that a client with the secret finds the leader. This covers defect Z12 of ØMQ Raft.
func TestSecret_RequiredForAccess(t *testing.T) {
	t.Parallel()
	secret, clientSecret := []byte("a secret of enough bytes"), []byte("another secret for clients")
	peers, nodes := startTCPCluster(t, 3, func(c *raftlog.Config) { c.Secret, c.ClientSecret = secret, clientSecret })
	_, err := nodes[0].Propose(contextWithin(t, time.Minute), api.NewRequestID(), []byte("a"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return nodes[0].Info().Leader.ID != "" }, time.Minute, 10*time.Millisecond)
	leader := nodes[0].Info().Leader

	// A client that knows only a peer that is not the leader finds the leader.
	for _, p := range peers {
		if p == leader {
			continue
		}
		c, err := client.New(client.Config{Cluster: "tcp", Peers: []api.Peer{p}, Secret: clientSecret, CallTimeout: 5 * time.Second})
		require.NoError(t, err)
		id := api.NewRequestID()
		index, err := c.Propose(contextWithin(t, time.Minute), id, []byte("by a client"))
		require.NoError(t, err)
		again, err := nodes[1].Propose(contextWithin(t, time.Minute), id, []byte("by a client"))
		require.NoError(t, err)
		require.Equal(t, index, again)
		m, err := c.Membership(contextWithin(t, time.Minute))
		require.NoError(t, err)
		require.ElementsMatch(t, peers, m.Voters)
		require.NoError(t, c.Close())
	}

	for text, refused := range map[string][]byte{"the secret differs": []byte("another one, as long"), "clients need the secret of client-secret-file": secret} {
		wrong, err := client.New(client.Config{Cluster: "tcp", Peers: peers, Secret: refused, CallTimeout: 5 * time.Second})
		require.NoError(t, err)
		defer wrong.Close()
		_, err = wrong.Propose(contextWithin(t, time.Minute), api.NewRequestID(), []byte("b"))
		require.ErrorIs(t, err, api.ErrRefused)
		require.ErrorContains(t, err, text)
	}
	var opening sync.WaitGroup
	for what, spoil := range map[string]func(*raftlog.Config){
		"secret":            func(c *raftlog.Config) { c.Secret = []byte("another one, as long") },
		"secret of clients": func(c *raftlog.Config) { c.Secret = clientSecret },
		"cluster":           func(c *raftlog.Config) { c.Cluster = "other" },
	} {
		c := raftlog.Config{
			Cluster: "tcp", ID: "stranger", Addr: "127.0.0.1:1", Listen: "127.0.0.1:0", Peers: peers, Dir: t.TempDir(),
			// Open fails after JoinTimeout.
			Secret: secret, ElectionTimeout: 500 * time.Millisecond, JoinTimeout: 3 * time.Second,
		}
		spoil(&c)
		opening.Go(func() {
			_, err := raftlog.Open(c)
			assert.ErrorIs(t, err, api.ErrRefused, what)
		})
	}
	opening.Wait()
}

// TestCertificates_RequiredForAccess checks that peers reject a client whose certificate another authority has
// signed.
func TestCertificates_RequiredForAccess(t *testing.T) {
	t.Parallel()
	ours, theirs := testenv.NewAuthority(t), testenv.NewAuthority(t)
	peers, nodes := startTCPCluster(t, 3, func(c *raftlog.Config) { c.TLS = ours.Config("127.0.0.1") })
	_, err := nodes[2].Propose(contextWithin(t, time.Minute), api.NewRequestID(), []byte("a"))
	require.NoError(t, err)
	c, err := client.New(client.Config{Cluster: "tcp", Peers: peers, TLS: ours.Config("127.0.0.1"), CallTimeout: 5 * time.Second})
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Propose(contextWithin(t, time.Minute), api.NewRequestID(), []byte("b"))
	require.NoError(t, err)
	config := theirs.Config("127.0.0.1")
	config.RootCAs = ours.Pool
	wrong, err := client.New(client.Config{Cluster: "tcp", Peers: peers, TLS: config, CallTimeout: 5 * time.Second})
	require.NoError(t, err)
	defer wrong.Close()
	_, err = wrong.Propose(contextWithin(t, time.Minute), api.NewRequestID(), []byte("c"))
	require.ErrorIs(t, err, api.ErrRefused)
}

// TestCertificates_AreVerifiedWithHostName checks that clients and joining peers accept a certificate for the
// host name of a peer, without its IP address, and that a client's certificate does not permit to join as a
// peer.
func TestCertificates_AreVerifiedWithHostName(t *testing.T) {
	t.Parallel()
	authority := testenv.NewAuthority(t)
	dial := func(ctx context.Context, addr string) (net.Conn, error) { // resolves all names to the loopback address
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
	}
	var founders []api.Peer
	startTCPCluster(t, 1, func(c *raftlog.Config) {
		_, port, err := net.SplitHostPort(c.Addr)
		require.NoError(t, err)
		c.Addr = net.JoinHostPort("node0.test", port)
		c.Peers, c.TLS, c.Dial = []api.Peer{{ID: c.ID, Addr: c.Addr}}, authority.Config("node0.test"), dial
		c.AllowedNames, c.AllowedClientNames = []string{"node0.test", "node1.test"}, []string{"client.test"}
		founders = c.Peers
	})
	c, err := client.New(client.Config{
		Cluster: "tcp", Peers: founders, TLS: authority.Config("client.test"), Dial: dial, CallTimeout: 5 * time.Second,
	})
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Propose(contextWithin(t, time.Minute), api.NewRequestID(), []byte("a"))
	require.NoError(t, err)

	join := func(certificate string) (*raftlog.Node, error) {
		return raftlog.Open(raftlog.Config{
			Cluster: "tcp", ID: "p1", Addr: "node1.test:1", Listen: "127.0.0.1:0", Peers: founders, Dir: memoryDir(t),
			ElectionTimeout: time.Second, JoinTimeout: 3 * time.Second, TLS: authority.Config(certificate), Dial: dial,
		})
	}
	_, err = join("client.test")
	require.ErrorIs(t, err, api.ErrRefused)
	require.ErrorContains(t, err, "allowed-names contains node0.test, node1.test")
	joining, err := join("node1.test")
	require.NoError(t, err)
	require.NoError(t, joining.Close())
}
