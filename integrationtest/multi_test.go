package integrationtest

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/integrationtest/internal/harness"
)

// TestLeadership_TokensIncrease fails if a token is not greater than those of earlier leaderships, even
// of an earlier election at the same path, whose sequence numbers were greater.
func TestLeadership_TokensIncrease(t *testing.T) {
	t.Parallel()
	conn, other := connect(t), connect(t)
	node := createElectionNode(t, conn)
	var last int64
	for i := range 6 {
		c, grant := startLeader(t, []*client{conn, other}[i%2], node)
		_, stat, err := conn.Exists(c.ID())
		require.NoError(t, err)
		require.Equal(t, stat.Czxid, grant.Token())
		require.Greater(t, grant.Token(), last)
		last = grant.Token()
		if i == 2 {
			electiontest.Confirm(t, c.EndElection)
			_, err := conn.Create(node, nil, 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			continue
		}
		c.resign(t)
	}
}

// TestMulti_OnlyLeader fails if the transaction of a candidate that is not leader is applied, or if an
// error of the transaction is reported as the loss of leadership.
func TestMulti_OnlyLeader(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	a, b := harness.NewPath(t), harness.NewPath(t)
	leader, _ := startLeader(t, conn, node)
	follower := startFollower(t, conn, node, leader)

	_, err := follower.multi(createRequest(a))
	require.ErrorIs(t, err, leaderelection.ErrNotLeader)
	require.False(t, znodeExists(t, conn, a))

	responses, err := leader.multi()
	require.NoError(t, err)
	require.Empty(t, responses)
	responses, err = leader.multi(createRequest(a), createRequest(b))
	require.NoError(t, err)
	require.Len(t, responses, 2, "not one response for each request of the caller")
	require.Equal(t, b, responses[1].String)

	// The error of the caller's operations is returned, and nothing is applied.
	responses, err = leader.multi(deleteRequest(a), createRequest(b))
	require.ErrorIs(t, err, zk.ErrNodeExists)
	require.NotErrorIs(t, err, leaderelection.ErrNotLeader)
	require.Len(t, responses, 2)
	require.True(t, znodeExists(t, conn, a))
	// If a znode of the caller's operations does not exist, the candidate is still leader.
	_, err = leader.multi(deleteRequest(a), deleteRequest(node+"-missing"))
	require.ErrorIs(t, err, zk.ErrNoNode)
	require.NotErrorIs(t, err, leaderelection.ErrNotLeader)
	require.True(t, znodeExists(t, conn, a))

	leader.resign(t)
	follower.requireLeader(t)
	_, err = leader.multi(deleteRequest(a))
	require.ErrorIs(t, err, leaderelection.ErrNotLeader)
	_, err = follower.multi(deleteRequest(a), deleteRequest(b))
	require.NoError(t, err)
	require.False(t, znodeExists(t, conn, a))
}
