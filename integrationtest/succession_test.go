package integrationtest

import (
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
)

// These are the cases that Comcast's go-leaderelection tests: first its
// integration tests, then its unit tests, then the list of intended ones.

// Case: Happy Path.
func TestHappyPath(t *testing.T) {
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
	require.NoError(t, conn.Delete(node, -1), "something was left in the election node")
}

// Case: TestLeaderElectionAndRecovery, four on one connection lead in turn.
func TestElectionAndRecovery(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	runElectionAndRecovery(t, conn, createElectionNode(t, conn))
}

func runElectionAndRecovery(t testing.TB, conn *client, node string) {
	t.Helper()
	leader, grant := startLeader(t, conn, node)
	line := []*candidate{leader}
	for range 3 {
		line = append(line, startFollower(t, conn, node, line[len(line)-1]))
	}
	for _, heir := range line[1:] {
		leader.resign(t)
		next := heir.requireLeader(t)
		require.Greater(t, next.Token(), grant.Token())
		leader, grant = heir, next
	}
	leader.resign(t)
}

// Case: BenchmarkTestLeaderElectionAndRecovery.
func BenchmarkElectionAndRecovery(b *testing.B) {
	conn := connect(b)
	node := createElectionNode(b, conn)
	for b.Loop() {
		runElectionAndRecovery(b, conn, node)
	}
}
