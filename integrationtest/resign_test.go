package integrationtest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/integrationtest/internal/harness"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestTrap05_DeleteReplyLost fails if the leader's znode remains after the connection was lost during its
// delete, because the session continues and the znode blocks all followers.
func TestTrap05_DeleteReplyLost(t *testing.T) {
	t.Parallel()
	for _, cut := range lostReplies {
		t.Run(cut.name, func(t *testing.T) {
			t.Parallel()
			admin, conn := connect(t), connectShort(t)
			node := createElectionNode(t, admin)
			c, l := startLeader(t, conn, node)
			next := startFollower(t, admin, node, c)
			session := conn.SessionID()
			rule := conn.Network[0].On(zkproxy.Rule{Op: zktest.OpDelete, Path: isBelow(node), Action: cut.action})

			begin := time.Now()
			err := c.Resign()
			require.Less(t, time.Since(begin), resignLimit)
			if err != nil {
				require.ErrorIs(t, err, leaderelection.ErrUnconfirmed)
			}
			harness.Receive(t, rule.Done(), "the fault")
			require.ErrorIs(t, l.Err(), leaderelection.ErrResigned)
			c.requireClosedWithoutStatus(t)
			next.requireLeader(t)
			require.Equal(t, []string{znodeName(next)}, listChildren(t, admin, node))
			electiontest.Confirm(t, c.Resign)
			require.Equal(t, session, conn.SessionID(), "the session was replaced")
		})
	}
}

// TestTrap05_DeleteReplyLostByFollower does the same with a follower.
func TestTrap05_DeleteReplyLostByFollower(t *testing.T) {
	t.Parallel()
	for _, cut := range lostReplies {
		t.Run(cut.name, func(t *testing.T) {
			t.Parallel()
			admin, conn := connect(t), connectShort(t)
			node := createElectionNode(t, admin)
			leader, l := startLeader(t, admin, node)
			c := startFollower(t, conn, node, leader)
			last := startFollower(t, admin, node, c)
			session := conn.SessionID()
			own := c.ID()
			rule := conn.Network[0].On(zkproxy.Rule{
				Op: zktest.OpDelete, Action: cut.action,
				Path: func(path string) bool { return path == own },
			})

			if err := c.Resign(); err != nil {
				require.ErrorIs(t, err, leaderelection.ErrUnconfirmed)
			}
			harness.Receive(t, rule.Done(), "the fault")
			last.requireFollower(t, leader)
			require.Len(t, listChildren(t, admin, node), 2)
			electiontest.Confirm(t, c.Resign)
			require.Equal(t, session, conn.SessionID(), "the session was replaced")
			require.NoError(t, l.Err())
			leader.requireNoStatus(t, 0)
		})
	}
}

// TestTrap05_DeleteIntoBlackHole does the same with a network that loses all data from before the delete
// until after the candidacy.
func TestTrap05_DeleteIntoBlackHole(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectShort(t)
	node := createElectionNode(t, admin)
	c, _ := startLeader(t, conn, node)
	next := startFollower(t, admin, node, c)
	session := conn.SessionID()

	conn.Network.Freeze()
	begin := time.Now()
	require.ErrorIs(t, c.Resign(), leaderelection.ErrUnconfirmed)
	require.Less(t, time.Since(begin), resignLimit)
	c.requireClosedWithoutStatus(t)
	require.NoError(t, c.waitResult(t))
	require.True(t, znodeExists(t, admin, c.ID()))
	next.requireNoStatus(t, 0)

	conn.Network.Restore()
	next.requireLeader(t)
	electiontest.Confirm(t, c.Resign)
	require.Equal(t, session, conn.SessionID(), "the session was replaced")
}

// TestTrap06_CleanupAfterContext fails if the context whose cancellation ends the candidacy also cancels the
// delete of the znode.
func TestTrap06_CleanupAfterContext(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectShort(t)
	node := createElectionNode(t, admin)
	session := conn.SessionID()

	t.Run("connected", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c, l := startLeader(t, conn, node, leaderelection.WithContext(ctx))
		cancel()
		requireLost(t, l, leaderelection.ErrResigned)
		require.NoError(t, c.waitResult(t))
		require.Empty(t, listChildren(t, admin, node))
	})
	t.Run("disconnected", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c, l := startLeader(t, conn, node, leaderelection.WithContext(ctx))
		conn.Network.Cut()
		cancel()
		requireLost(t, l, leaderelection.ErrResigned)
		require.NoError(t, c.waitResult(t))
		require.ErrorIs(t, c.Resign(), leaderelection.ErrUnconfirmed)
		require.True(t, znodeExists(t, admin, c.ID()))
		conn.Network.Restore()
		waitDeleted(t, admin, c.ID())
		electiontest.Confirm(t, c.Resign)
	})
	t.Run("during the create", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		rule := conn.Network[0].On(zkproxy.Rule{Op: zktest.OpCreate, Path: isBelow(node), Action: zkproxy.HoldReply})
		c := startCandidate(t, conn, node, leaderelection.WithContext(ctx))
		harness.Receive(t, rule.Done(), "the fault")
		cancel()
		require.NoError(t, c.waitResult(t))
		require.Len(t, listChildren(t, admin, node), 1)
		rule.Release()
		electiontest.Confirm(t, c.Resign)
		require.Empty(t, listChildren(t, admin, node))
	})
	require.Equal(t, session, conn.SessionID(), "the session was replaced")
}

// TestTrap44_StaleResign fails if a late delete of an ended candidacy deletes the znode of a newer one.
func TestTrap44_StaleResign(t *testing.T) {
	t.Parallel()
	admin, conn := connect(t), connectShort(t)
	node := createElectionNode(t, admin)

	// The delete of the first candidacy is pending while the second joins on the same connection. It is sent
	// again after the second has become leader.
	old, _ := startLeader(t, conn, node)
	c := newCandidate(t, conn, node)
	rule := conn.Network[0].On(zkproxy.Rule{Op: zktest.OpDelete, Path: isBelow(node), Action: zkproxy.CutBeforeRequest})
	conn.Network.Refuse()
	require.ErrorIs(t, old.Resign(), leaderelection.ErrUnconfirmed)
	harness.Receive(t, rule.Done(), "the fault")
	c.startElecting()
	t.Cleanup(func() { _ = c.Resign() })
	deleteZnode(t, admin, old.ID())
	conn.Network.Restore()
	l := c.requireLeader(t)

	for range 3 {
		electiontest.Confirm(t, old.Resign)
	}
	_, err := old.multi()
	require.ErrorIs(t, err, leaderelection.ErrNotLeader, "the old candidate leads by the znode of the new one")
	requireOnlyChild(t, admin, node, c, conn)
	require.NoError(t, l.Err())
	c.requireNoStatus(t, quietTime)
}

// TestResign_RepeatedCalls fails if a repeated call of Resign, EndElection, or ElectLeader panics.
func TestResign_RepeatedCalls(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	c, _ := startLeader(t, conn, node)
	require.ErrorIs(t, c.ElectLeader(), leaderelection.ErrAlreadyStarted)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { electiontest.Confirm(t, c.Resign) })
	}
	wg.Wait()
	require.ErrorIs(t, c.ElectLeader(), leaderelection.ErrAlreadyStarted)
	for range 8 {
		wg.Go(func() { electiontest.Confirm(t, c.EndElection) })
	}
	wg.Wait()
	require.NoError(t, c.EndElection())
	electiontest.Confirm(t, c.Resign)
	require.False(t, znodeExists(t, conn, node))
}

// TestResign_WhileDisconnected fails if the znode remains after the client has connected again.
func TestResign_WhileDisconnected(t *testing.T) {
	t.Parallel()
	conn, other := connect(t), connect(t)
	node := createElectionNode(t, other)
	leader, grant := startLeader(t, conn, node)
	follower := startFollower(t, other, node, leader)
	session := conn.SessionID()

	conn.Network.Cut()
	begin := time.Now()
	require.ErrorIs(t, leader.Resign(), leaderelection.ErrUnconfirmed)
	require.Less(t, time.Since(begin), resignLimit)
	require.ErrorIs(t, grant.Err(), leaderelection.ErrResigned)
	leader.requireClosed(t)
	require.True(t, znodeExists(t, other, leader.ID()), "the session has ended")
	conn.Network.Restore()
	follower.requireLeader(t)
	require.Equal(t, session, conn.SessionID())
	electiontest.Confirm(t, leader.Resign)
}

// TestResign_WhileServerIsDown fails if a candidate that resigns while the server is down leaves its znode
// when the server returns within the session timeout.
func TestResign_WhileServerIsDown(t *testing.T) {
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

// TestResign_CandidateIsOver fails if a candidate can be used after Resign.
func TestResign_CandidateIsOver(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	c, _ := startLeader(t, conn, node)
	c.resign(t)
	require.ErrorIs(t, c.ElectLeader(), leaderelection.ErrAlreadyStarted)
	_, err := c.multi()
	require.ErrorIs(t, err, leaderelection.ErrNotLeader)
	_, open := <-c.Status()
	require.False(t, open)
	require.Equal(t, leaderelection.Follower, c.Current().Role)
	require.Nil(t, c.Current().Leadership)
	electiontest.Confirm(t, c.Resign)
	require.Empty(t, listChildren(t, conn, node))

	// A candidate that was not started can resign. It does not join afterwards.
	idle := newCandidate(t, conn, node)
	electiontest.Confirm(t, idle.Resign)
	idle.requireClosed(t)
	require.NoError(t, idle.ElectLeader())
	require.Empty(t, listChildren(t, conn, node))
}

// TestResign_ByContext fails if the cancellation of the context differs from Resign.
func TestResign_ByContext(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	ctx, cancel := context.WithCancel(t.Context())
	leader, grant := startLeader(t, conn, node, leaderelection.WithContext(ctx))
	follower := startFollower(t, conn, node, leader)
	cancel()
	require.NoError(t, leader.waitResult(t))
	leader.requireClosed(t)
	requireLost(t, grant, leaderelection.ErrResigned)
	follower.requireLeader(t)
	electiontest.Confirm(t, leader.Resign)
	require.ErrorIs(t, leader.ElectLeader(), leaderelection.ErrAlreadyStarted)

	// A context that ends before ElectLeader.
	ctx, cancel = context.WithCancel(t.Context())
	c := newCandidate(t, conn, node, leaderelection.WithContext(ctx))
	cancel()
	c.startElecting()
	require.NoError(t, c.waitResult(t))
	c.requireClosed(t)
	require.Equal(t, []string{znodeName(follower)}, listChildren(t, conn, node))
}

// TestResign_Leader fails if the first follower does not become leader, or if a status follows Resign.
func TestResign_Leader(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	leader, first := startLeader(t, conn, node)
	follower := startFollower(t, conn, node, leader)

	electiontest.Confirm(t, leader.Resign)
	leader.requireClosedWithoutStatus(t)
	second := follower.requireLeader(t)
	require.Greater(t, second.Token(), first.Token())
	late := startFollower(t, conn, node, follower)
	late.resign(t)
	follower.resign(t)
	require.NoError(t, conn.Delete(node, -1))
}

// TestResign_Follower fails if the departure of a follower affects another candidate than its own follower.
func TestResign_Follower(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	leader, _ := startLeader(t, conn, node)
	f1 := startFollower(t, conn, node, leader)
	f2 := startFollower(t, conn, node, f1)

	f1.resign(t)
	require.Equal(t, f1.ID(), f2.requireFollower(t, leader).WasFollowing)
	leader.requireNoStatus(t, quietTime)

	leader.resign(t)
	s := f2.nextStatus(t)
	require.Equal(t, leaderelection.Leader, s.Role)
	require.Empty(t, s.NowFollowing)
	require.Equal(t, leader.ID(), s.WasFollowing)
	electiontest.Confirm(t, f2.Resign)
	f2.requireClosedWithoutStatus(t)
}

// TestResign_LastCandidate fails if an election has a leader or children after all candidates have resigned.
func TestResign_LastCandidate(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	leader, _ := startLeader(t, conn, node)
	follower := startFollower(t, conn, node, leader)
	follower.resign(t)
	leader.resign(t)
	all, err := leaderelection.Candidates(t.Context(), conn.Conn, node)
	require.NoError(t, err)
	require.Empty(t, all)
	require.Empty(t, listChildren(t, conn, node))
}

// TestResign_NextFollowerLeads fails if another candidate than the first follower becomes leader.
func TestResign_NextFollowerLeads(t *testing.T) {
	t.Parallel()
	conn, other := connect(t), connect(t)
	node := createElectionNode(t, conn)
	leader, _ := startLeader(t, conn, node)
	f1 := startFollower(t, other, node, leader)
	f2 := startFollower(t, other, node, f1)
	leader.resign(t)
	f1.requireLeader(t)
	f2.requireNoStatus(t, quietTime)
}
