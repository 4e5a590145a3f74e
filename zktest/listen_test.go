package zktest_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestRefuse_KeepsPort checks that a server that refuses connections accepts no TCP connection, and has the same
// port afterwards.
func TestRefuse_KeepsPort(t *testing.T) {
	s := zktest.Start(t)
	addr := s.Addr()
	s.Refuse(true)
	if nc, err := net.Dial("tcp", addr); err == nil {
		nc.Close()
		t.Error("the server accepts a connection")
	}
	s.Refuse(false)
	c, events, err := zk.Connect([]string{addr}, 10*time.Second, zk.WithLogInfo(false), zk.WithHostProvider(zktest.HostProvider()))
	require.NoError(t, err)
	defer c.Close()
	waitState(t, events, zk.StateHasSession)
	assert.Equal(t, addr, s.Addr(), "address %s after %s", s.Addr(), addr)
}

// TestWithAddr_UsesEachAddress checks that the servers of an ensemble use the addresses of WithAddr in turn, and
// that a stopped server opens its port when it starts again.
func TestWithAddr_UsesEachAddress(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	ens, err := zktest.NewEnsemble(3, zktest.WithAddr("127.0.0.1:0", ln.Addr().String()))
	require.NoError(t, err)
	defer ens.Close()
	_, err = ens.Server(0).Listen()
	require.ErrorContains(t, err, ln.Addr().String())

	// A server that is stopped when the ports are opened opens its port when it starts.
	other := zktest.StartEnsemble(t, 3)
	other.Server(2).Stop()
	addr := other.Addrs()[2]
	_, err = net.Dial("tcp", addr)
	require.Error(t, err)
	other.Server(2).Restart(zktest.KeepTree)
	nc, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	nc.Close()
}

// TestEnsemble_AcceptsClientsOverTCP checks that a client can connect to an ensemble over TCP.
func TestEnsemble_AcceptsClientsOverTCP(t *testing.T) {
	e := zktest.StartEnsemble(t, 3)
	c, events, err := zk.Connect(e.Addrs(), 10*time.Second, zk.WithLogInfo(false))
	require.NoError(t, err)
	defer c.Close()
	waitState(t, events, zk.StateHasSession)
	mustCreate(t, c, "/a", "", 0)
	data, _, err := c.Get("/zookeeper/config")
	assert.True(t, err == nil && strings.Contains(string(data), "server.3="), "config %q", data)
}
