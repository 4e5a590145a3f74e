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
	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
	"github.com/go-leaderelection/leaderelection/zkdial"
)

// TestElectLeader_FailsIfServerIsDown checks that ElectLeader returns ErrUnreachable if the server is down.
func TestElectLeader_FailsIfServerIsDown(t *testing.T) {
	t.Parallel()
	server := oneServer.acquire(t)
	conn := connectTo(t, shortTimeout, server.Addrs()...)
	node := createElectionNode(t, conn)
	c := newCandidate(t, conn, node)
	require.NoError(t, server.Kill(0))
	c.startElecting()
	c.requireEnded(t, leaderelection.ErrUnreachable)

	restartServer(t, server, conn)
	conn = connectTo(t, shortTimeout, server.Addrs()...)
	electiontest.Confirm(t, c.Resign)
	require.Empty(t, listChildren(t, conn, node))
}

// TestServerDown_LeaderKeepsStatusUntilLeaseEnds checks that the statuses of leader and follower do not change before
// the lease of the leader ends if the server is down, and that Resign does not block.
func TestServerDown_LeaderKeepsStatusUntilLeaseEnds(t *testing.T) {
	t.Parallel()
	server := oneServer.acquire(t)
	conn := connectTo(t, sessionTimeout, server.Addrs()...)
	node := createElectionNode(t, conn)
	leader, grant := startLeader(t, conn, node)
	follower := startFollower(t, conn, node, leader)

	waitFullLease(t, grant, sessionTimeout)
	require.NoError(t, server.Kill(0))
	leader.requireNoStatus(t, quietTime)
	follower.requireNoStatus(t, quietTime)
	require.NoError(t, grant.Err())
	for _, c := range []*candidate{leader, follower} {
		resigned := make(chan error, 1)
		go func() { resigned <- c.Resign() }()
		c.requireClosedWithoutStatus(t)
		require.ErrorIs(t, <-resigned, leaderelection.ErrUnconfirmed)
		require.NoError(t, c.waitResult(t))
	}
	requireLost(t, grant, leaderelection.ErrResigned)
}

// TestResign_DeletesZnodeAfterServerRestarts checks that a candidate that resigns while the server is down deletes
// its znode when the server is available again within the session timeout.
func TestResign_DeletesZnodeAfterServerRestarts(t *testing.T) {
	t.Parallel()
	server := oneServer.acquire(t)
	conn := connectTo(t, sessionTimeout, server.Addrs()...)
	other := connectTo(t, sessionTimeout, server.Addrs()...)
	node := createElectionNode(t, conn)
	leader, _ := startLeader(t, conn, node)
	f1 := startFollower(t, conn, node, leader)
	f2 := startFollower(t, other, node, f1)
	require.NoError(t, server.Kill(0))
	for _, c := range []*candidate{f1, leader} {
		require.ErrorIs(t, c.Resign(), leaderelection.ErrUnconfirmed)
	}
	restartServer(t, server, conn, other)
	for s := f2.nextStatus(t); s.Role != leaderelection.Leader; s = f2.nextStatus(t) {
		require.Equal(t, leader.ID(), s.NowFollowing)
	}
	require.Equal(t, []string{znodeName(f2)}, listChildren(t, other, node))
	for _, c := range []*candidate{f1, leader} {
		electiontest.Confirm(t, c.Resign)
	}
}

// TestSession_RecoversOnRebuiltEnsemble moves a client to a server that has less data than the client has seen, for
// example because its disk was replaced. The connection of zkdial must recover within a session timeout, and a
// candidate with WithRejoin must become leader again.
func TestSession_RecoversOnRebuiltEnsemble(t *testing.T) {
	t.Parallel()
	old, rebuilt := ensemble.StartServers(t, ensemble.Config{}), ensemble.StartServers(t, ensemble.Config{})
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
	waitLeader := func() *leaderelection.Leadership {
		var l *leaderelection.Leadership
		require.Eventually(t, func() bool { l = e.Current().Leadership; return l != nil && l.Err() == nil }, granted+testenv.WaitLimit, 10*time.Millisecond)
		return l
	}
	first := waitLeader()
	moved.Store(true)
	require.NoError(t, old.Kill(0))
	<-first.Done()
	waitLeader()
	exists, _, err := conn.Exists("/history-0000000000")
	require.NoError(t, err)
	require.False(t, exists)
	electiontest.Confirm(t, e.Resign)
	require.NoError(t, <-ended)
}
