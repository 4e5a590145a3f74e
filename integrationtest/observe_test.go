package integrationtest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/integrationtest/internal/harness"
)

// TestObserve_Changes fails if an observer does not receive a change of the leader.
func TestObserve_Changes(t *testing.T) {
	t.Parallel()
	conn, observer := connect(t), connect(t)
	node := createElectionNode(t, conn)
	seen, err := leaderelection.Observe(t.Context(), observer.Conn, node)
	require.NoError(t, err)
	require.Equal(t, leaderelection.Observation{}, harness.Receive(t, seen, "no leader"))

	leader, grant := startLeader(t, conn, node, leaderelection.WithName("one"))
	require.Equal(t, observationOf(leader, "one", grant), harness.Receive(t, seen, "the first leader"))
	follower := startFollower(t, conn, node, leader, leaderelection.WithName("two"))
	leader.resign(t)
	next := follower.requireLeader(t)
	require.Equal(t, observationOf(follower, "two", next), harness.Receive(t, seen, "the second leader"))
	follower.resign(t)
	require.Equal(t, leaderelection.Observation{}, harness.Receive(t, seen, "no leader"))

	// A late reader receives the newest observation.
	for range 3 {
		c, _ := startLeader(t, conn, node)
		c.resign(t)
	}
	last, grant := startLeader(t, conn, node, leaderelection.WithName("last"))
	o := harness.Receive(t, seen, "a leader")
	for o != observationOf(last, "last", grant) && (o.Leader == nil || *o.Leader != *observationOf(last, "last", grant).Leader) {
		o = harness.Receive(t, seen, "the last leader")
	}

	// The observation continues after the session of the observer has expired.
	observer.ExpireSession(t)
	observer.Network.Restore()
	last.resign(t)
	require.Equal(t, leaderelection.Observation{}, harness.Receive(t, seen, "no leader, after the session has expired"))

	require.NoError(t, leaderelection.DeleteElection(conn.Conn, node))
	require.ErrorIs(t, harness.Receive(t, seen, "the final observation").Err, leaderelection.ErrElectionOver)
	_, open := <-seen
	require.False(t, open)
}

func observationOf(c *candidate, name string, grant *leaderelection.Leadership) leaderelection.Observation {
	return leaderelection.Observation{Leader: &leaderelection.CandidateInfo{ID: c.ID(), Name: name, Token: grant.Token()}}
}

// TestCandidates_Order fails if the candidates are not listed in the order of succession.
func TestCandidates_Order(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	infos, err := leaderelection.Candidates(t.Context(), conn.Conn, node)
	require.NoError(t, err)
	require.Empty(t, infos)

	leader, grant := startLeader(t, conn, node, leaderelection.WithName("0"))
	all := []*candidate{leader}
	for i := range 11 {
		all = append(all, startFollower(t, conn, node, all[i], leaderelection.WithName(fmt.Sprint(i+1))))
	}
	all[5].resign(t)
	all[6].requireFollower(t, all[4])
	all = append(all[:5], all[6:]...)
	infos, err = leaderelection.Candidates(t.Context(), conn.Conn, node)
	require.NoError(t, err)
	require.Len(t, infos, len(all))
	for i, c := range all {
		require.Equal(t, c.ID(), infos[i].ID)
		if i > 0 {
			require.Greater(t, infos[i].Token, infos[i-1].Token)
		}
	}
	require.Equal(t, leaderelection.CandidateInfo{ID: leader.ID(), Name: "0", Token: grant.Token()}, infos[0])
	require.Equal(t, "11", infos[10].Name)
}
