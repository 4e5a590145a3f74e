package integrationtest

import (
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
