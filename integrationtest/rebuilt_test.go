package integrationtest

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
	"github.com/go-leaderelection/leaderelection/zkdial"
)

// TestRebuiltEnsemble moves a client to a server that has less data than the client has
// seen, as one that was rebuilt with an empty disk. A connection of zkdial recovers after a
// session timeout, and a candidate that rejoins leads again.
func TestRebuiltEnsemble(t *testing.T) {
	t.Parallel()
	old, rebuilt := startEnsemble(t, ensemble.Config{}), startEnsemble(t, ensemble.Config{})
	var moved atomic.Bool
	dial := func(network, _ string, timeout time.Duration) (net.Conn, error) {
		if moved.Load() {
			return net.DialTimeout(network, rebuilt.Addr(0), timeout)
		}
		return net.DialTimeout(network, old.Addr(0), timeout)
	}
	conn, _, err := zkdial.Connect([]string{"zk.example"}, shortTimeout, zkdial.WithDialer(dial))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	granted, err := zkdial.Wait(t.Context(), conn)
	require.NoError(t, err)
	for range 50 {
		_, err := conn.Create("/history-", nil, zk.FlagSequence, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	e, err := leaderelection.NewElection(conn, "/app/election", leaderelection.WithCreateNode(), leaderelection.WithRejoin())
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- e.ElectLeader() }()
	leads := func() *leaderelection.Leadership {
		var l *leaderelection.Leadership
		require.Eventually(t, func() bool { l = e.Current().Leadership; return l != nil && l.Err() == nil }, granted+patience, 10*time.Millisecond)
		return l
	}
	first := leads()
	moved.Store(true)
	require.NoError(t, old.Kill(0))
	<-first.Done()
	leads()
	exists, _, err := conn.Exists("/history-0000000000")
	require.NoError(t, err)
	require.False(t, exists)
	electiontest.Confirm(t, e.Resign)
	require.NoError(t, <-ended)
}
