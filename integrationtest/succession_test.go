package integrationtest

import (
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
)

// TestElection_SingleCandidate fails if a single candidate does not become leader, or leaves its znode.
func TestElection_SingleCandidate(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	_, stat, err := conn.Exists(node)
	require.NoError(t, err)
	require.Zero(t, stat.EphemeralOwner, "the election node is ephemeral")

	c, grant := startLeader(t, conn, node)
	require.Regexp(t, `^`+regexp.QuoteMeta(node)+`/_c_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-latch-[0-9]{10}$`, c.ID())
	_, stat, err = conn.Exists(c.ID())
	require.NoError(t, err)
	require.Equal(t, conn.SessionID(), stat.EphemeralOwner)
	require.Equal(t, stat.Czxid, grant.Token())
	c.requireNoStatus(t, time.Second)
	require.NoError(t, grant.Err())

	c.resign(t)
	requireLost(t, grant, leaderelection.ErrResigned)
	require.NoError(t, conn.Delete(node, -1), "a child of the election node remains")
}

// TestElection_FourInTurn fails if four candidates of a connection do not become leaders one after another.
func TestElection_FourInTurn(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	runElectionAndRecovery(t, conn, createElectionNode(t, conn))
}

func runElectionAndRecovery(t testing.TB, conn *client, node string) {
	t.Helper()
	leader, grant := startLeader(t, conn, node)
	all := []*candidate{leader}
	for range 3 {
		all = append(all, startFollower(t, conn, node, all[len(all)-1]))
	}
	for _, successor := range all[1:] {
		leader.resign(t)
		next := successor.requireLeader(t)
		require.Greater(t, next.Token(), grant.Token())
		leader, grant = successor, next
	}
	leader.resign(t)
}

// BenchmarkElection_FourInTurn measures the succession of four candidates.
func BenchmarkElection_FourInTurn(b *testing.B) {
	conn := connect(b)
	node := createElectionNode(b, conn)
	for b.Loop() {
		runElectionAndRecovery(b, conn, node)
	}
}
