package integrationtest

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/integrationtest/internal/harness"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
)

// C18: there was no fencing token. It grows with every leadership, also over a
// new election at the same path, where sequence numbers start anew.
func TestC18Tokens(t *testing.T) {
	t.Parallel()
	conn, elsewhere := connect(t), connect(t)
	node := createElectionNode(t, conn)
	var last int64
	for i := range 6 {
		c, grant := startLeader(t, []*client{conn, elsewhere}[i%2], node)
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

// C18: there was no fencing by transaction.
func TestC18Multi(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	a, b := harness.NewPath(t), harness.NewPath(t)
	leader, _ := startLeader(t, conn, node)
	follower := startFollower(t, conn, node, leader)

	_, err := follower.Multi(createRequest(a))
	require.ErrorIs(t, err, leaderelection.ErrNotLeader)
	require.False(t, znodeExists(t, conn, a))

	responses, err := leader.Multi()
	require.NoError(t, err)
	require.Empty(t, responses)
	responses, err = leader.Multi(createRequest(a), createRequest(b))
	require.NoError(t, err)
	require.Len(t, responses, 2, "one for each of the caller's")
	require.Equal(t, b, responses[1].String)

	// What ZooKeeper has against it is told, and nothing is applied.
	responses, err = leader.Multi(deleteRequest(a), createRequest(b))
	require.ErrorIs(t, err, zk.ErrNodeExists)
	require.NotErrorIs(t, err, leaderelection.ErrNotLeader)
	require.Len(t, responses, 2)
	require.True(t, znodeExists(t, conn, a))
	// A znode missing in the caller's part is not one's own missing.
	_, err = leader.Multi(deleteRequest(a), deleteRequest(node+"-missing"))
	require.ErrorIs(t, err, zk.ErrNoNode)
	require.NotErrorIs(t, err, leaderelection.ErrNotLeader)
	require.True(t, znodeExists(t, conn, a))

	leader.resign(t)
	follower.requireLeader(t)
	_, err = leader.Multi(deleteRequest(a))
	require.ErrorIs(t, err, leaderelection.ErrNotLeader)
	_, err = follower.Multi(deleteRequest(a), deleteRequest(b))
	require.NoError(t, err)
	require.False(t, znodeExists(t, conn, a))
}

// The transaction is refused by the ensemble when the own znode is deleted and
// the leader does not know it yet.
func TestMultiFenced(t *testing.T) {
	t.Parallel()
	conn, elsewhere := connect(t), connect(t)
	node := createElectionNode(t, conn)
	target := harness.NewPath(t)
	leader, grant := startLeader(t, conn, node)

	conn.Network[0].Blackhole(zkproxy.ServerToClient) // it hears nothing
	require.NoError(t, elsewhere.Delete(leader.ID(), -1))
	require.NoError(t, grant.Err(), "it still believes to lead")
	done := harness.InBackground(t, func() error {
		_, err := leader.Multi(createRequest(target))
		return err
	})
	harness.Eventually(t, func() bool { return len(requestsOf(conn, zkproxy.OpMulti, leader.ID())) > 0 }, "the transaction is sent")
	conn.Network.Thaw()
	require.ErrorIs(t, harness.Receive(t, done, "the transaction"), leaderelection.ErrNotLeader)
	require.False(t, znodeExists(t, elsewhere, target))
	leader.requireEnded(t, leaderelection.ErrCandidateDeleted)
}

// requestsOf lists a client's requests of one kind for a path.
func requestsOf(conn *client, op int32, path string) (found []zkproxy.Record) {
	for _, r := range conn.Network[0].Log() {
		if r.Kind == zkproxy.Request && r.Op == op && r.Path == path {
			found = append(found, r)
		}
	}
	return found
}
