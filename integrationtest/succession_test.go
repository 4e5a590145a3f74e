package integrationtest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestElection_FourCandidatesLeadInTurn checks that four candidates of one connection become leaders one after
// another.
func TestElection_FourCandidatesLeadInTurn(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	runSuccessionOfFour(t, conn, createElectionNode(t, conn))
}

func runSuccessionOfFour(t testing.TB, conn *client, node string) {
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

// BenchmarkElection_FourCandidatesLeadInTurn measures how long four candidates need to become leaders one after
// another.
func BenchmarkElection_FourCandidatesLeadInTurn(b *testing.B) {
	conn := connect(b)
	node := createElectionNode(b, conn)
	for b.Loop() {
		runSuccessionOfFour(b, conn, node)
	}
}
