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
	"github.com/go-leaderelection/leaderelection/internal/zk/handshake"
)

// Trap 12: a lease that is reckoned from the moment at which the connection was
// seen to break ends after the session.
func TestTrap12_LeaseCountsFromTheLastProof(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectShort(t)
	node := createElectionNode(t, admin)
	c, l := startLeader(t, conn, node)
	next := startFollower(t, admin, node, c)
	_, _, deleted, err := admin.ExistsW(c.ID())
	require.NoError(t, err)
	// By now the leader has a chain of proofs and the full lease.
	harness.Eventually(t, func() bool { return time.Until(l.Deadline()) > shortTimeout/3 }, "no proof arrives")

	conn.Network.Freeze()
	frozen := time.Now()
	harness.Receive(t, l.Done(), "the end of the lease")
	lasted, left := time.Since(frozen), l.Deadline().Sub(frozen)
	state := conn.State()
	require.Equal(t, leaderelection.Suspended, c.nextStatus(t).Role)
	require.ErrorIs(t, l.Err(), leaderelection.ErrLeaseExpired)
	// The last proof was asked for before the loss, however late this process hears of its lease.
	require.Less(t, left, shortTimeout/2, "counted from the loss or later")
	require.Less(t, lasted, shortTimeout, "told late")
	select {
	case <-deleted:
		require.Fail(t, "the session has ended before the lease")
	default:
	}
	harness.Receive(t, deleted, "the session's end")
	expired := time.Since(frozen)
	next.requireLeader(t)
	t.Logf("session %v: Done after %v, when the client library said %v; the session ended after %v", shortTimeout,
		lasted.Round(time.Millisecond), state, expired.Round(time.Millisecond))
	conn.Network.Restore()
	c.requireEnded(t, leaderelection.ErrSessionExpired)
}

// Trap 14: the holder is not told that the leadership is gone.
func TestTrap14_HolderIsTold(t *testing.T) {
	t.Parallel()
	for _, end := range []struct {
		name   string
		do     func(t *testing.T, admin, conn *client, c *candidate)
		reason error
		final  error // nil where there is no final status
	}{
		{"resigned", func(t *testing.T, _, _ *client, c *candidate) {
			electiontest.Confirm(t, c.Resign)
		}, leaderelection.ErrResigned, nil},
		{"znode deleted", func(t *testing.T, admin, _ *client, c *candidate) {
			deleteZnode(t, admin, c.ID())
		}, leaderelection.ErrCandidateDeleted, leaderelection.ErrCandidateDeleted},
		{"election over", func(t *testing.T, admin, _ *client, c *candidate) {
			require.NoError(t, leaderelection.DeleteElection(admin.Conn, electionNode(c)))
		}, nil, leaderelection.ErrElectionOver}, // told as soon as the znode has gone, for whatever reason
		{"session expired", func(t *testing.T, _, conn *client, _ *candidate) {
			conn.ExpireSession(t)
			conn.Network.Restore()
		}, leaderelection.ErrSessionExpired, leaderelection.ErrSessionExpired},
		{"connection closed", func(_ *testing.T, _, conn *client, _ *candidate) {
			conn.Close()
		}, nil, leaderelection.ErrConnClosed}, // as above
	} {
		t.Run(end.name, func(t *testing.T) {
			t.Parallel()
			admin, conn := connect(t), connectWithoutPause(t, shortTimeout)
			node := createElectionNode(t, admin)
			c, l := startLeader(t, conn, node)
			told := harness.InBackground(t, func() error {
				<-l.Done()
				return l.Err()
			})
			end.do(t, admin, conn, c)
			reason := harness.Receive(t, told, "the end of the leadership")
			if end.reason != nil {
				require.ErrorIs(t, reason, end.reason)
			}
			if end.final == nil {
				c.requireClosedWithoutStatus(t)
			} else {
				c.requireEnded(t, end.final)
			}
			require.Equal(t, reason, l.Err(), "the reason does not change")
			require.Equal(t, leaderelection.Follower, c.Current().Role)
		})
	}
}

// Trap 16: a leader that was stopped goes on after another one has been
// elected, and writes. Here it has a lease far too long, which is as if it had
// just looked at the clock before it was stopped.
func TestTrap16_StoppedLeaderWrites(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectShort(t)
	node := createElectionNode(t, admin)
	register, err := admin.Create(node+"-register", []byte("initial"), 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	handshake.Of(conn.Conn).Grant(time.Minute)
	c, old := startLeader(t, conn, node, leaderelection.WithSessionTimeout(time.Minute))
	next := startFollower(t, admin, node, c)

	conn.Network.Freeze()
	l := next.requireLeader(t)
	require.NoError(t, old.Err(), "the old leader must still believe")
	require.Greater(t, l.Token(), old.Token(), "what checks tokens refuses the old leader's")
	written := harness.InBackground(t, func() error {
		_, err := c.Multi(&zk.SetDataRequest{Path: register, Data: []byte("too late"), Version: -1})
		return err
	})
	_, err = next.Multi(&zk.SetDataRequest{Path: register, Data: []byte("new"), Version: -1})
	require.NoError(t, err)
	conn.Network.Restore()
	c.requireEnded(t, leaderelection.ErrSessionExpired)
	if err := harness.Receive(t, written, "the old leader's write"); err == nil {
		require.Fail(t, "the old leader has written")
	} else {
		require.True(t, isAnyOf(err, leaderelection.ErrNotLeader, leaderelection.ErrUnconfirmed), "%v", err)
	}
	_, err = c.Multi(&zk.SetDataRequest{Path: register, Data: []byte("too late"), Version: -1})
	require.ErrorIs(t, err, leaderelection.ErrNotLeader)
	data, stat, err := admin.Get(register)
	require.NoError(t, err)
	require.Equal(t, "new", string(data))
	require.EqualValues(t, 1, stat.Version)
}

// Trap 16, where the old leader's write is on its way while the other one is
// elected.
func TestTrap16_WriteUnderWay(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectShort(t)
	node := createElectionNode(t, admin)
	register, err := admin.Create(node+"-register", nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	handshake.Of(conn.Conn).Grant(time.Minute)
	c, old := startLeader(t, conn, node, leaderelection.WithSessionTimeout(time.Minute))
	next := startFollower(t, admin, node, c)

	// The request leaves the client and is held on its way.
	for _, p := range conn.Network {
		p.Blackhole(zkproxy.ClientToServer)
	}
	written := harness.InBackground(t, func() error {
		_, err := c.Multi(&zk.SetDataRequest{Path: register, Data: []byte("too late"), Version: -1})
		return err
	})
	deleteZnode(t, admin, c.ID())
	l := next.requireLeader(t)
	require.Greater(t, l.Token(), old.Token())
	conn.Network.Thaw()
	require.ErrorIs(t, harness.Receive(t, written, "the old leader's write"), leaderelection.ErrNotLeader)
	require.Zero(t, readStat(t, admin, register).Version)
	c.requireEnded(t, leaderelection.ErrCandidateDeleted)
}

// Trap 42: the next term begins while the last one has not ended.
func TestTrap42_TermsDoNotOverlap(t *testing.T) {
	t.Parallel()
	t.Run("attentive reader", func(t *testing.T) {
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
		harness.Eventually(t, func() bool { return c.Current().Role == leaderelection.Leader }, "proven again")
		require.Equal(t, leaderelection.Suspended, c.nextStatus(t).Role, "the end comes before the new beginning")
		require.Equal(t, l.Token(), c.requireLeader(t).Token())
	})
	t.Run("new session", func(t *testing.T) {
		t.Parallel()
		admin, conn := connect(t), connectWithoutPause(t, shortTimeout)
		node := createElectionNode(t, admin)
		c, l := startLeader(t, conn, node, leaderelection.WithRejoin())
		conn.ExpireSession(t)
		conn.Network.Restore()
		harness.Eventually(t, func() bool { return c.Current().Role == leaderelection.Leader && c.Current().Leadership != l }, "leads again")
		require.Error(t, l.Err())
		s := c.nextStatus(t)
		require.NotEqual(t, leaderelection.Leader, s.Role, "the end comes before the new beginning")
		for s.Role != leaderelection.Leader {
			s = c.nextStatus(t)
		}
		require.Greater(t, s.Leadership.Token(), l.Token())
	})
}

// These tests show the known defects of Comcast's go-leaderelection absent, by
// their numbers. What was impossible with it (C18) is in the files of its own:
// TestC18....

// C1: a leader cut off from ZooKeeper was told nothing; a second one was
// elected meanwhile.
func TestC01TwoLeaders(t *testing.T) {
	t.Parallel()
	const elections = 12
	conn, elsewhere := connectShort(t), connect(t)
	type pair struct {
		leader, follower *candidate
		grant            *leaderelection.Leadership
	}
	var pairs []pair
	for range elections {
		node := createElectionNode(t, elsewhere)
		leader, grant := startLeader(t, conn, node)
		pairs = append(pairs, pair{leader, startFollower(t, elsewhere, node, leader), grant})
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

// hangingProvider is a zk.HostProvider whose Next can block, like a provider that resolves names
// while the name server does not answer. The client library holds a lock in the meantime.
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

func TestLeaseEndsWhileAHostProviderHangs(t *testing.T) {
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
	require.Empty(t, successor.Status(), "told before another can lead")
	successor.requireLeader(t)
}
