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
)

// Trap 11: a candidate takes the first place although its znode is from the
// session before.
func TestTrap11_ZnodeOfPreviousSession(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectWithoutPause(t, shortTimeout)
	node := createElectionNode(t, admin)
	leader, _ := startLeader(t, admin, node)
	c := startFollower(t, conn, node, leader)
	last := startFollower(t, admin, node, c)

	old := conn.SessionID()
	conn.ExpireSession(t)
	leader.resign(t)
	last.requireLeader(t)
	conn.Network.Restore()
	c.requireEnded(t, leaderelection.ErrSessionExpired)
	conn.WaitConnected(t)
	require.NotEqual(t, old, conn.SessionID())
	require.Equal(t, []string{znodeName(last)}, listChildren(t, admin, node))
}

// Trap 11, where a znode of the candidate's name is there all the time, though
// it is somebody else's now.
func TestTrap11_ZnodeOfSomebodyElse(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectWithoutPause(t, shortTimeout)
	node := createElectionNode(t, admin)
	ahead := createContender(t, admin, node)
	c := startCandidate(t, conn, node)
	require.Equal(t, ahead, c.nextStatus(t).NowFollowing)

	conn.Network.Cut()
	deleteZnode(t, admin, c.ID())
	_, err := admin.Create(c.ID(), nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	deleteZnode(t, admin, ahead)
	conn.Network.Restore()
	for _, s := range c.remainingStatuses(t) {
		require.NotEqual(t, leaderelection.Leader, s.Role, "%v", s)
	}
	require.Error(t, c.waitResult(t))
}

// Trap 18: the client library goes on in a new session without anybody's having
// seen the old one expire.
func TestTrap18_NewSessionUnseen(t *testing.T) {
	t.Parallel()
	t.Run("while leading", func(t *testing.T) {
		t.Parallel()
		admin, conn := connect(t), connectWithoutPause(t, shortTimeout)
		node := createElectionNode(t, admin)
		c, l := startLeader(t, conn, node)
		next := startFollower(t, admin, node, c)
		conn.ExpireSession(t)
		next.requireLeader(t)
		conn.Network.Restore()
		requireLost(t, l, leaderelection.ErrSessionExpired)
		c.requireEnded(t, leaderelection.ErrSessionExpired)
		_, err := c.Multi()
		require.ErrorIs(t, err, leaderelection.ErrNotLeader)
		require.Equal(t, []string{znodeName(next)}, listChildren(t, admin, node))
	})
	t.Run("while entering", func(t *testing.T) {
		t.Parallel()
		// The create is queued in one session and carried out in the next.
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

// Trap 21: a connection that flaps makes leadership flap.
func TestTrap21_Flapping(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectWithoutPause(t, shortTimeout)
	node := createElectionNode(t, admin)
	c, l := startLeader(t, conn, node)
	next := startFollower(t, conn, node, c)
	last := startFollower(t, admin, node, next)
	session := conn.SessionID()
	for range 8 {
		proven := l.Deadline()
		conn.Network.Drop()
		conn.WaitConnected(t)
		harness.Eventually(t, func() bool { return l.Deadline().After(proven) }, "no proof arrives")
		require.NoError(t, l.Err())
	}
	require.Equal(t, session, conn.SessionID())
	for _, each := range []*candidate{c, next, last} {
		each.requireNoStatus(t, 0)
	}
	require.Len(t, listChildren(t, admin, node), 3)
	require.Equal(t, 3, countCreates(t, admin, node))
}

// Trap 22: something waits for ever on a connection that was closed, or is
// suspended.
func TestTrap22_NothingHangs(t *testing.T) {
	t.Parallel()
	for _, state := range []struct {
		name string
		// prepare brings a candidate into the state.
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
			harness.Eventually(t, func() bool { return conn.State() != zk.StateHasSession }, "cut")
			return c
		}},
		{"creating", func(t *testing.T, _, conn *client, node string) *candidate {
			rule := conn.Network[0].On(zkproxy.Rule{Op: zkproxy.OpCreate, Path: isBelow(node), Action: zkproxy.HoldReply})
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
				require.Less(t, time.Since(begin), shortTimeout, "told late")
				_ = c.Resign() // returns at once, whatever it says
				require.Less(t, time.Since(begin), shortTimeout)
				_, err := c.Multi()
				require.ErrorIs(t, err, leaderelection.ErrNotLeader)
				harness.Receive(t, closed, "Close")
			})
			t.Run("resigned", func(t *testing.T) {
				admin, conn := connect(t), connectShort(t)
				c := state.prepare(t, admin, conn, createElectionNode(t, admin))
				begin := time.Now()
				_ = c.Resign() // it may or may not be confirmed
				require.Less(t, time.Since(begin), resignLimit)
				c.requireClosedWithoutStatus(t)
				require.NoError(t, c.waitResult(t))
			})
		})
	}
}

// Trap 22, with several candidates on the connection: their znodes all go with
// the session, in any order, and the server still tells them of each other.
func TestTrap22_CloseWithSeveral(t *testing.T) {
	t.Parallel()
	admin := connect(t)
	for range 8 {
		conn := connectShort(t)
		node := createElectionNode(t, admin)
		h := newHistory()
		var all []*candidate
		for range 4 {
			c := startCandidate(t, conn, node)
			if s := c.nextStatus(t); s.Role == leaderelection.Leader {
				h.addTerm("first", c.ID(), s.Leadership)
			}
			all = append(all, c)
		}
		last := startFollower(t, admin, node, all[len(all)-1])
		harness.Eventually(t, func() bool { return conn.Network[0].Count(zkproxy.OpMulti) > 2 }, "the second in line is prepared")
		conn.Close()
		h.addTerm("last", last.ID(), last.requireLeader(t))
		for _, c := range all {
			c.requireEnded(t, leaderelection.ErrConnClosed)
		}
	}
}

// C2: the expiry of a session was reported as the end of the election, or not
// at all.
func TestC02SilentExpiry(t *testing.T) {
	t.Parallel()
	for range 6 {
		conn, elsewhere := connect(t), connect(t)
		var leaders, followers []*candidate
		for range 6 {
			node := createElectionNode(t, elsewhere)
			leader, _ := startLeader(t, conn, node)
			leaders = append(leaders, leader)
			other := createElectionNode(t, elsewhere)
			first, _ := startLeader(t, elsewhere, other)
			followers = append(followers, startFollower(t, conn, other, first))
		}
		conn.ExpireSession(t)
		conn.Network.Restore()
		for _, c := range append(leaders, followers...) {
			c.requireEnded(t, leaderelection.ErrSessionExpired)
		}
	}
}

// C18: there was no way back after the loss of a session.
func TestC18Rejoin(t *testing.T) {
	t.Parallel()
	conn, elsewhere := connect(t), connect(t)
	node := createElectionNode(t, conn)
	c, first := startLeader(t, conn, node, leaderelection.WithRejoin(), leaderelection.WithClientName("again"))
	follower := startFollower(t, elsewhere, node, c)
	last := startFollower(t, conn, node, follower, leaderelection.WithRejoin())
	oldID := c.ID()

	conn.ExpireSession(t)
	second := follower.requireLeader(t)
	require.Greater(t, second.Token(), first.Token())
	conn.Network.Restore()
	for _, c := range []*candidate{c, last} {
		harness.Eventually(t, func() bool {
			return c.Current().NowFollowing != "" && znodeExists(t, elsewhere, c.ID()) && c.ID() != oldID
		}, "it is back")
	}
	// Leader, suspended where that was seen, out of line, following.
	s := c.nextStatus(t)
	for s.NowFollowing == "" {
		require.NotEqual(t, leaderelection.Leader, s.Role)
		require.NoError(t, s.Err)
		s = c.nextStatus(t)
	}
	require.True(t, isAnyOf(first.Err(), leaderelection.ErrSessionExpired, leaderelection.ErrLeaseExpired))
	require.NotEqual(t, oldID, c.ID())
	require.Len(t, listChildren(t, elsewhere, node), 3)
	data, stat, err := conn.Get(c.ID())
	require.NoError(t, err)
	require.Equal(t, "again", string(data))
	require.Equal(t, conn.SessionID(), stat.EphemeralOwner)

	follower.resign(t)
	harness.Eventually(t, func() bool {
		return c.Current().Role == leaderelection.Leader || last.Current().Role == leaderelection.Leader
	}, "one of them leads")
	electiontest.Confirm(t, c.Resign)
	electiontest.Confirm(t, last.Resign)
	require.Empty(t, listChildren(t, elsewhere, node))
}

// Scenario: ZooKeeper is back in time. Everything is kept.
func TestReconnectInTime(t *testing.T) {
	t.Parallel()
	conn := connectWithoutPause(t, sessionTimeout)
	conn.Network.DelayReplies()
	node := createElectionNode(t, conn)
	leader, grant := startLeader(t, conn, node)
	f1 := startFollower(t, conn, node, leader)
	f2 := startFollower(t, conn, node, f1)
	for range 3 {
		waitFullLease(t, grant, sessionTimeout)
		session := conn.SessionID()
		conn.Network.Drop()
		conn.WaitConnected(t)
		require.Equal(t, session, conn.SessionID())
		_, err := leader.Multi()
		require.NoError(t, err)
	}
	for _, c := range []*candidate{leader, f1, f2} {
		c.requireNoStatus(t, quietTime)
	}
	require.NoError(t, grant.Err())
	leader.resign(t)
	f1.requireLeader(t)
	f2.requireNoStatus(t, quietTime)
}

// Case: intended 4, the connection is lost: all are notified and exit.
func TestConnectionLost(t *testing.T) {
	t.Parallel()
	conn, elsewhere := connectShort(t), connect(t)
	node := createElectionNode(t, conn)
	leader, grant := startLeader(t, conn, node)
	f1 := startFollower(t, conn, node, leader)
	f2 := startFollower(t, conn, node, f1)

	conn.Network.Freeze()
	require.Equal(t, leaderelection.Suspended, leader.nextStatus(t).Role)
	requireLost(t, grant, leaderelection.ErrLeaseExpired)
	waitDeleted(t, elsewhere, leader.ID())
	conn.Network.Restore()
	for _, c := range []*candidate{leader, f1, f2} {
		c.requireEnded(t, leaderelection.ErrSessionExpired)
	}
	require.Empty(t, listChildren(t, elsewhere, node))
}

// Case: intended 4, with the client itself closing the connection.
func TestConnectionClosed(t *testing.T) {
	t.Parallel()
	conn, elsewhere := connect(t), connect(t)
	node := createElectionNode(t, conn)
	leader, grant := startLeader(t, conn, node)
	follower := startFollower(t, conn, node, leader)
	heir := startFollower(t, elsewhere, node, follower)
	conn.Close()
	for _, c := range []*candidate{leader, follower} {
		all := c.remainingStatuses(t)
		require.ErrorIs(t, all[len(all)-1].Err, leaderelection.ErrConnClosed)
	}
	require.Error(t, grant.Err())
	s := heir.nextStatus(t)
	for s.Role != leaderelection.Leader { // the first may be seen to go later
		require.Equal(t, leader.ID(), s.NowFollowing)
		s = heir.nextStatus(t)
	}
}

// Case: ZK Absence 1, NewElection while ZooKeeper is down.
func TestAbsenceAtStart(t *testing.T) {
	t.Parallel()
	server := oneServer.acquire(t)
	require.NoError(t, server.Kill(0))
	conn := harness.Dial(t, shortTimeout, server.Addrs()...)
	e, err := leaderelection.NewElection(conn.Conn, "/election", leaderelection.WithSessionTimeout(shortTimeout))
	require.ErrorIs(t, err, leaderelection.ErrUnreachable)
	require.Nil(t, e)
}

// Case: ZK Absence 2, ElectLeader while ZooKeeper is down.
func TestAbsenceAtElectLeader(t *testing.T) {
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

// Case: ZK Absence 3, ZooKeeper stops under a leader and a follower.
func TestAbsenceWhileElected(t *testing.T) {
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

// TestRebuiltEnsemble moves a client to a server that has less data than the client has
// seen, as one that was rebuilt with an empty disk. A connection of zkdial recovers after a
// session timeout, and a candidate that rejoins leads again.
func TestRebuiltEnsemble(t *testing.T) {
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
	leads := func() *leaderelection.Leadership {
		var l *leaderelection.Leadership
		require.Eventually(t, func() bool { l = e.Current().Leadership; return l != nil && l.Err() == nil }, granted+harness.WaitLimit, 10*time.Millisecond)
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
