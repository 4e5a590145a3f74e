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
	"github.com/go-leaderelection/leaderelection/integrationtest/internal/harness"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
	"github.com/go-leaderelection/leaderelection/zkdial"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestTrap18_NewSessionWithoutEvent fails if a candidate does not notice that the client library has
// replaced an expired session by a new one.
func TestTrap18_NewSessionWithoutEvent(t *testing.T) {
	t.Parallel()
	t.Run("while leading", func(t *testing.T) {
		t.Parallel()
		// The lease is so long that it does not end before the client connects again.
		admin, conn := connect(t), connectWithoutPause(t, sessionTimeout)
		node := createElectionNode(t, admin)
		c, l := startLeader(t, conn, node)
		next := startFollower(t, admin, node, c)
		conn.ExpireSession(t)
		next.requireLeader(t)
		conn.Network.Restore()
		requireLost(t, l, leaderelection.ErrSessionExpired)
		c.requireEnded(t, leaderelection.ErrSessionExpired)
		_, err := c.multi()
		require.ErrorIs(t, err, leaderelection.ErrNotLeader)
		require.Equal(t, []string{znodeName(next)}, listChildren(t, admin, node))
	})
	t.Run("while entering", func(t *testing.T) {
		t.Parallel()
		// The create is queued in one session and sent in the next.
		admin, conn := connect(t), connectWithoutPause(t, shortTimeout)
		node := createElectionNode(t, admin)
		c := newCandidate(t, conn, node)
		old := conn.SessionID()
		conn.ExpireSession(t)
		c.startElecting()
		t.Cleanup(func() { _ = c.Resign() })
		conn.Network.Restore()
		l := c.requireLeader(t)
		require.NotEqual(t, old, conn.SessionID())
		requireOnlyChild(t, admin, node, c, conn)
		require.Equal(t, readStat(t, admin, c.ID()).Czxid, l.Token())
		c.resign(t)
		require.Empty(t, listChildren(t, admin, node))
	})
}

// TestTrap21_Flapping fails if short disconnections end the leadership.
func TestTrap21_Flapping(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectWithoutPause(t, sessionTimeout)
	node := createElectionNode(t, admin)
	c, l := startLeader(t, conn, node)
	next := startFollower(t, conn, node, c)
	last := startFollower(t, admin, node, next)
	session := conn.SessionID()
	for range 8 {
		deadline := l.Deadline()
		conn.Network.Drop()
		conn.WaitConnected(t)
		harness.Eventually(t, func() bool { return l.Deadline().After(deadline) }, "the lease was not renewed")
		require.NoError(t, l.Err())
	}
	require.Equal(t, session, conn.SessionID())
	for _, each := range []*candidate{c, next, last} {
		each.requireNoStatus(t, 0)
	}
	require.Len(t, listChildren(t, admin, node), 3)
	require.Equal(t, 3, countCreates(t, admin, node))
}

// TestTrap22_CallsReturn fails if ElectLeader or Resign blocks after the connection was closed, or while it
// is suspended.
func TestTrap22_CallsReturn(t *testing.T) {
	t.Parallel()
	for _, state := range []struct {
		name string
		// prepare puts a candidate into the state.
		prepare func(t *testing.T, admin, conn *client, node string) *candidate
	}{
		{"leading", func(t *testing.T, _, conn *client, node string) *candidate {
			c, _ := startLeader(t, conn, node)
			return c
		}},
		{"following", func(t *testing.T, admin, conn *client, node string) *candidate {
			leader, _ := startLeader(t, admin, node)
			return startFollower(t, conn, node, leader)
		}},
		{"suspended", func(t *testing.T, _, conn *client, node string) *candidate {
			c, l := startLeader(t, conn, node)
			conn.Network.Freeze()
			harness.Receive(t, l.Done(), "the end of the lease")
			require.Equal(t, leaderelection.Suspended, c.nextStatus(t).Role)
			return c
		}},
		{"disconnected", func(t *testing.T, admin, conn *client, node string) *candidate {
			leader, _ := startLeader(t, admin, node)
			c := startFollower(t, conn, node, leader)
			conn.Network.Cut()
			harness.Eventually(t, func() bool { return conn.State() != zk.StateHasSession }, "the client is still connected")
			return c
		}},
		{"creating", func(t *testing.T, _, conn *client, node string) *candidate {
			rule := conn.Network[0].On(zkproxy.Rule{Op: zktest.OpCreate, Path: isBelow(node), Action: zkproxy.HoldReply})
			c := startCandidate(t, conn, node, leaderelection.WithRejoin())
			harness.Receive(t, rule.Done(), "the fault")
			return c
		}},
	} {
		t.Run(state.name, func(t *testing.T) {
			t.Parallel()
			t.Run("closed", func(t *testing.T) {
				admin, conn := connect(t), connectShort(t)
				c := state.prepare(t, admin, conn, createElectionNode(t, admin))
				closed := harness.InBackground(t, func() error { conn.Close(); return nil })
				begin := time.Now()
				c.requireEnded(t, leaderelection.ErrConnClosed)
				require.Less(t, time.Since(begin), shortTimeout, "the candidate was notified late")
				_ = c.Resign() // returns immediately, with or without an error
				require.Less(t, time.Since(begin), shortTimeout)
				_, err := c.multi()
				require.ErrorIs(t, err, leaderelection.ErrNotLeader)
				harness.Receive(t, closed, "Close")
			})
			t.Run("resigned", func(t *testing.T) {
				admin, conn := connect(t), connectShort(t)
				c := state.prepare(t, admin, conn, createElectionNode(t, admin))
				begin := time.Now()
				_ = c.Resign() // may or may not be confirmed
				require.Less(t, time.Since(begin), resignLimit)
				c.requireClosedWithoutStatus(t)
				require.NoError(t, c.waitResult(t))
			})
		})
	}
}

// TestWithRejoin_AfterExpiry fails if a candidate does not join again after its session has expired.
func TestWithRejoin_AfterExpiry(t *testing.T) {
	t.Parallel()
	conn, other := connect(t), connect(t)
	node := createElectionNode(t, conn)
	c, first := startLeader(t, conn, node, leaderelection.WithRejoin(), leaderelection.WithName("again"))
	follower := startFollower(t, other, node, c)
	last := startFollower(t, conn, node, follower, leaderelection.WithRejoin())
	oldID := c.ID()

	conn.ExpireSession(t)
	second := follower.requireLeader(t)
	require.Greater(t, second.Token(), first.Token())
	conn.Network.Restore()
	for _, c := range []*candidate{c, last} {
		harness.Eventually(t, func() bool {
			return c.Current().NowFollowing != "" && znodeExists(t, other, c.ID()) && c.ID() != oldID
		}, "the candidate has not joined again")
	}
	// The statuses are those of a leader, of a suspended leader if the suspension was noticed, of a candidate
	// without a znode, and of a follower.
	s := c.nextStatus(t)
	for s.NowFollowing == "" {
		require.NotEqual(t, leaderelection.Leader, s.Role)
		require.NoError(t, s.Err)
		s = c.nextStatus(t)
	}
	require.True(t, isAnyOf(first.Err(), leaderelection.ErrSessionExpired, leaderelection.ErrLeaseExpired))
	require.NotEqual(t, oldID, c.ID())
	require.Len(t, listChildren(t, other, node), 3)
	data, stat, err := conn.Get(c.ID())
	require.NoError(t, err)
	require.Equal(t, "again", string(data))
	require.Equal(t, conn.SessionID(), stat.EphemeralOwner)

	follower.resign(t)
	harness.Eventually(t, func() bool {
		return c.Current().Role == leaderelection.Leader || last.Current().Role == leaderelection.Leader
	}, "no candidate leads")
	electiontest.Confirm(t, c.Resign)
	electiontest.Confirm(t, last.Resign)
	require.Empty(t, listChildren(t, other, node))
}

// TestSession_NetworkLost fails if a candidate is not notified that the network is lost.
func TestSession_NetworkLost(t *testing.T) {
	t.Parallel()
	conn, other := connectShort(t), connect(t)
	node := createElectionNode(t, conn)
	leader, grant := startLeader(t, conn, node)
	f1 := startFollower(t, conn, node, leader)
	f2 := startFollower(t, conn, node, f1)

	conn.Network.Freeze()
	require.Equal(t, leaderelection.Suspended, leader.nextStatus(t).Role)
	requireLost(t, grant, leaderelection.ErrLeaseExpired)
	waitDeleted(t, other, leader.ID())
	conn.Network.Restore()
	for _, c := range []*candidate{leader, f1, f2} {
		c.requireEnded(t, leaderelection.ErrSessionExpired)
	}
	require.Empty(t, listChildren(t, other, node))
}

// TestServerDown_NewElection fails if NewElection does not report that the server is down.
func TestServerDown_NewElection(t *testing.T) {
	t.Parallel()
	server := oneServer.acquire(t)
	require.NoError(t, server.Kill(0))
	conn := harness.Dial(t, shortTimeout, server.Addrs()...)
	e, err := leaderelection.NewElection(conn.Conn, "/election", leaderelection.WithSessionTimeout(shortTimeout))
	require.ErrorIs(t, err, leaderelection.ErrUnreachable)
	require.Nil(t, e)
}

// TestServerDown_ElectLeader fails if ElectLeader does not report that the server is down.
func TestServerDown_ElectLeader(t *testing.T) {
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

// TestServerDown_WhileElected fails if a stopped server changes a status before the lease ends, or if
// Resign blocks.
func TestServerDown_WhileElected(t *testing.T) {
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

// TestSession_RebuiltEnsemble moves a client to a server that has less data than the client has seen, for
// example because its disk was replaced. It fails if a connection of zkdial does not recover within a
// session timeout, or if a candidate that rejoins does not become leader again.
func TestSession_RebuiltEnsemble(t *testing.T) {
	t.Parallel()
	old, rebuilt := harness.StartServers(t, ensemble.Config{}), harness.StartServers(t, ensemble.Config{})
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
		require.Eventually(t, func() bool { l = e.Current().Leadership; return l != nil && l.Err() == nil }, granted+harness.WaitLimit, 10*time.Millisecond)
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
