package integrationtest

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/integrationtest/internal/harness"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// TestTrap12_LeaseStartsAtLastCheck fails if the lease starts when the connection is lost, and thus ends
// after the session.
func TestTrap12_LeaseStartsAtLastCheck(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectShort(t)
	node := createElectionNode(t, admin)
	c, l := startLeader(t, conn, node)
	next := startFollower(t, admin, node, c)
	_, _, deleted, err := admin.ExistsW(c.ID())
	require.NoError(t, err)
	// After several checks the lease has its full length.
	harness.Eventually(t, func() bool { return time.Until(l.Deadline()) > shortTimeout/3 }, "the lease was not renewed")

	conn.Network.Freeze()
	frozen := time.Now()
	harness.Receive(t, l.Done(), "the end of the lease")
	lasted, left := time.Since(frozen), l.Deadline().Sub(frozen)
	state := conn.State()
	require.Equal(t, leaderelection.Suspended, c.nextStatus(t).Role)
	require.ErrorIs(t, l.Err(), leaderelection.ErrLeaseExpired)
	// The last check was sent before the loss, even if this process notices late that its lease has
	// expired.
	require.Less(t, left, shortTimeout/2, "the lease starts at the loss of the connection or later")
	require.Less(t, lasted, shortTimeout, "Done was closed late")
	select {
	case <-deleted:
		require.Fail(t, "the session has ended before the lease")
	default:
	}
	harness.Receive(t, deleted, "the end of the session")
	expired := time.Since(frozen)
	next.requireLeader(t)
	t.Logf("session %v: Done after %v, in state %v of the client library; the session ended after %v", shortTimeout,
		lasted.Round(time.Millisecond), state, expired.Round(time.Millisecond))
	conn.Network.Restore()
	c.requireEnded(t, leaderelection.ErrSessionExpired)
}

// TestTrap14_LeaderIsNotified fails if the leader is not notified that it has lost the leadership.
func TestTrap14_LeaderIsNotified(t *testing.T) {
	t.Parallel()
	for _, end := range []struct {
		name   string
		do     func(t *testing.T, admin, conn *client, c *candidate)
		reason error
		final  error // nil if there is no final status
	}{
		{"resigned", func(t *testing.T, _, _ *client, c *candidate) {
			electiontest.Confirm(t, c.Resign)
		}, leaderelection.ErrResigned, nil},
		{"znode deleted", func(t *testing.T, admin, _ *client, c *candidate) {
			deleteZnode(t, admin, c.ID())
		}, leaderelection.ErrDeleted, leaderelection.ErrDeleted},
		{"election over", func(t *testing.T, admin, _ *client, c *candidate) {
			require.NoError(t, leaderelection.DeleteElection(admin.Conn, electionNode(c)))
		}, nil, leaderelection.ErrElectionOver}, // reported as soon as the znode is deleted, whatever the reason
		{"session expired", func(t *testing.T, _, conn *client, _ *candidate) {
			conn.ExpireSession(t)
			conn.Network.Restore()
		}, leaderelection.ErrSessionExpired, leaderelection.ErrSessionExpired},
		{"connection closed", func(_ *testing.T, _, conn *client, _ *candidate) {
			conn.Close()
		}, nil, leaderelection.ErrConnClosed}, // also reported early
	} {
		t.Run(end.name, func(t *testing.T) {
			t.Parallel()
			// The lease is so long that it does not end before the client connects again.
			admin, conn := connect(t), connectWithoutPause(t, sessionTimeout)
			node := createElectionNode(t, admin)
			c, l := startLeader(t, conn, node)
			notified := harness.InBackground(t, func() error {
				<-l.Done()
				return l.Err()
			})
			end.do(t, admin, conn, c)
			reason := harness.Receive(t, notified, "the end of the leadership")
			if end.reason != nil {
				require.ErrorIs(t, reason, end.reason)
			}
			if end.final == nil {
				c.requireClosedWithoutStatus(t)
			} else {
				c.requireEnded(t, end.final)
			}
			require.Equal(t, reason, l.Err(), "the reason has changed")
			require.Equal(t, leaderelection.Follower, c.Current().Role)
		})
	}
}

// TestTrap16_StoppedLeaderWrites fails if a leader that was stopped can write after another was elected.
// The leader has a lease that is far too long here, as if it was stopped just after it checked the
// clock.
func TestTrap16_StoppedLeaderWrites(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectShort(t)
	node := createElectionNode(t, admin)
	register, err := admin.Create(node+"-register", []byte("initial"), 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	connection.RecordOf(conn.Conn).Grant(time.Minute)
	c, old := startLeader(t, conn, node, leaderelection.WithSessionTimeout(time.Minute))
	next := startFollower(t, admin, node, c)

	conn.Network.Freeze()
	l := next.requireLeader(t)
	require.NoError(t, old.Err(), "the old leader has already lost the leadership")
	require.Greater(t, l.Token(), old.Token(), "the token has not increased")
	written := harness.InBackground(t, func() error {
		_, err := c.multi(&zk.SetDataRequest{Path: register, Data: []byte("too late"), Version: -1})
		return err
	})
	_, err = next.multi(&zk.SetDataRequest{Path: register, Data: []byte("new"), Version: -1})
	require.NoError(t, err)
	conn.Network.Restore()
	c.requireEnded(t, leaderelection.ErrSessionExpired)
	if err := harness.Receive(t, written, "the old leader's write"); err == nil {
		require.Fail(t, "the old leader has written")
	} else {
		require.True(t, isAnyOf(err, leaderelection.ErrNotLeader, leaderelection.ErrUnconfirmed), "%v", err)
	}
	_, err = c.multi(&zk.SetDataRequest{Path: register, Data: []byte("too late"), Version: -1})
	require.ErrorIs(t, err, leaderelection.ErrNotLeader)
	data, stat, err := admin.Get(register)
	require.NoError(t, err)
	require.Equal(t, "new", string(data))
	require.EqualValues(t, 1, stat.Version)
}

// TestTrap16_WriteInFlight does the same with a write that the network delivers after the election of the
// new leader.
func TestTrap16_WriteInFlight(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectShort(t)
	node := createElectionNode(t, admin)
	register, err := admin.Create(node+"-register", nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	connection.RecordOf(conn.Conn).Grant(time.Minute)
	c, old := startLeader(t, conn, node, leaderelection.WithSessionTimeout(time.Minute))
	next := startFollower(t, admin, node, c)

	// The request leaves the client, and the network holds it.
	for _, p := range conn.Network {
		p.Blackhole(zkproxy.ClientToServer)
	}
	written := harness.InBackground(t, func() error {
		_, err := c.multi(&zk.SetDataRequest{Path: register, Data: []byte("too late"), Version: -1})
		return err
	})
	deleteZnode(t, admin, c.ID())
	l := next.requireLeader(t)
	require.Greater(t, l.Token(), old.Token())
	conn.Network.Thaw()
	require.ErrorIs(t, harness.Receive(t, written, "the old leader's write"), leaderelection.ErrNotLeader)
	require.Zero(t, readStat(t, admin, register).Version)
	c.requireEnded(t, leaderelection.ErrDeleted)
}

// TestTrap42_TermsDoNotOverlap fails if a candidate's next term starts before its previous term has ended.
func TestTrap42_TermsDoNotOverlap(t *testing.T) {
	t.Parallel()
	t.Run("immediate reader", func(t *testing.T) {
		t.Parallel()
		admin, conn := connect(t), connectWithoutPause(t, shortTimeout)
		node := createElectionNode(t, admin)
		c, l := startLeader(t, conn, node)
		for range 2 {
			conn.Network.Freeze()
			harness.Receive(t, l.Done(), "the end of the lease")
			require.Equal(t, leaderelection.Suspended, c.nextStatus(t).Role)
			conn.Network.Restore()
			again := c.requireLeader(t)
			require.NotSame(t, l, again)
			require.Equal(t, l.Token(), again.Token())
			require.ErrorIs(t, l.Err(), leaderelection.ErrLeaseExpired)
			l = again
		}
	})
	t.Run("late reader", func(t *testing.T) {
		t.Parallel()
		admin, conn := connect(t), connectWithoutPause(t, shortTimeout)
		node := createElectionNode(t, admin)
		c, l := startLeader(t, conn, node)
		conn.Network.Freeze()
		harness.Receive(t, l.Done(), "the end of the lease")
		conn.Network.Restore()
		harness.Eventually(t, func() bool { return c.Current().Role == leaderelection.Leader }, "the leader does not lead again")
		require.Equal(t, leaderelection.Suspended, c.nextStatus(t).Role, "the second term was reported before the end of the first")
		require.Equal(t, l.Token(), c.requireLeader(t).Token())
	})
	t.Run("new session", func(t *testing.T) {
		t.Parallel()
		admin, conn := connect(t), connectWithoutPause(t, shortTimeout)
		node := createElectionNode(t, admin)
		c, l := startLeader(t, conn, node, leaderelection.WithRejoin())
		conn.ExpireSession(t)
		conn.Network.Restore()
		harness.Eventually(t, func() bool { return c.Current().Role == leaderelection.Leader && c.Current().Leadership != l }, "the candidate does not lead again")
		require.Error(t, l.Err())
		s := c.nextStatus(t)
		require.NotEqual(t, leaderelection.Leader, s.Role, "the second term was reported before the end of the first")
		for s.Role != leaderelection.Leader {
			s = c.nextStatus(t)
		}
		require.Greater(t, s.Leadership.Token(), l.Token())
	})
}

// TestLease_ExpiresBeforeSuccession fails if a leader without a connection keeps its leadership until
// another leader is elected.
func TestLease_ExpiresBeforeSuccession(t *testing.T) {
	t.Parallel()
	const elections = 12
	conn, other := connectShort(t), connect(t)
	type pair struct {
		leader, follower *candidate
		grant            *leaderelection.Leadership
	}
	var pairs []pair
	for range elections {
		node := createElectionNode(t, other)
		leader, grant := startLeader(t, conn, node)
		pairs = append(pairs, pair{leader, startFollower(t, other, node, leader), grant})
	}
	conn.Network.Freeze()
	for _, p := range pairs {
		next := p.follower.requireLeader(t)
		select {
		case <-p.grant.Done():
		default:
			require.Fail(t, "two leaders")
		}
		require.Greater(t, next.Token(), p.grant.Token())
		require.Equal(t, leaderelection.Suspended, p.leader.nextStatus(t).Role)
	}
	conn.Network.Restore()
	for _, p := range pairs {
		p.leader.requireEnded(t, leaderelection.ErrSessionExpired)
	}
}

// hangingProvider is a zk.HostProvider whose Next can block, like a provider that resolves names while the
// name server does not answer. The client library holds a lock during the call.
type hangingProvider struct {
	zk.HostProvider
	hang atomic.Bool
	gate chan struct{}
}

func (h *hangingProvider) Next() (string, bool) {
	if h.hang.Load() {
		<-h.gate
	}
	return h.HostProvider.Next()
}

func TestLease_HostProviderBlocks(t *testing.T) {
	t.Parallel()
	network := harness.NewNetwork(t, shared.Addrs()...)
	provider := &hangingProvider{HostProvider: harness.InOrder(network.Addrs()), gate: make(chan struct{})}
	conn := harness.DialWith(t, shortTimeout, network, provider)
	t.Cleanup(func() { close(provider.gate) })
	conn.WaitSession(t)
	other := connect(t)
	node := createElectionNode(t, other)
	leader, grant := startLeader(t, conn, node)
	successor := startFollower(t, other, node, leader)

	provider.hang.Store(true)
	conn.Network.Cut()
	requireLost(t, grant, leaderelection.ErrLeaseExpired)
	require.Empty(t, successor.Status(), "the follower leads before Done is closed")
	successor.requireLeader(t)
}
