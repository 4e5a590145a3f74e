package zktest_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestConfig_ListsAddressesOfListeners checks that /zookeeper/config contains the addresses of the listeners,
// because Curator replaces its list of servers by these addresses.
func TestConfig_ListsAddressesOfListeners(t *testing.T) {
	ens := zktest.StartEnsemble(t, 3)
	c, _, err := ens.Connect(10 * time.Second)
	require.NoError(t, err)
	config := func() string {
		data, _, err := c.Get("/zookeeper/config")
		require.NoError(t, err)
		return string(data)
	}
	require.True(t, strings.HasPrefix(config(), "server.1=zk1:2888:3888:participant;0.0.0.0:2181\nserver.2="), config())

	ens.Server(0).Partition() // the clients of this server read an earlier state
	first := ens.Server(1).Addr()
	addrs := ens.Addrs()
	require.Equal(t, first, addrs[1])
	for i, line := range strings.Split(config(), "\n")[:3] {
		_, client, _ := strings.Cut(line, ";")
		require.Equal(t, addrs[i], client)
		require.True(t, strings.HasPrefix(line, "server."), line)
	}
	ens.Server(0).Heal()

	ens.Restart(zktest.LoseTree)
	c, _, err = ens.Connect(10 * time.Second)
	require.NoError(t, err)
	require.Contains(t, config(), addrs[2])
}

// TestConfig_ContainsUsableHostForAllInterfaces checks that /zookeeper/config contains a host to which a client
// can connect, if the listener uses all interfaces.
func TestConfig_ContainsUsableHostForAllInterfaces(t *testing.T) {
	ens := zktest.StartEnsemble(t, 2, zktest.WithAddr("0.0.0.0:0"))
	_, port, err := net.SplitHostPort(ens.Addrs()[0])
	require.NoError(t, err)
	c, _, err := ens.Connect(10 * time.Second)
	require.NoError(t, err)
	data, _, err := c.Get("/zookeeper/config")
	require.NoError(t, err)
	require.Contains(t, string(data), "server.1=127.0.0.1:2888:3888:participant;[::]:"+port)
}
