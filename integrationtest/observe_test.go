package integrationtest

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/integrationtest/internal/harness"
)

// C18: nobody could ask who leads, or watch without taking part.
func TestC18Observe(t *testing.T) {
	t.Parallel()
	conn, observer := connect(t), connect(t)
	node := createElectionNode(t, conn)
	seen, err := leaderelection.Observe(t.Context(), observer.Conn, node)
	require.NoError(t, err)
	require.Equal(t, leaderelection.Observation{}, harness.Receive(t, seen, "nobody leads"))

	leader, grant := startLeader(t, conn, node, leaderelection.WithClientName("one"))
	require.Equal(t, observationOf(leader, "one", grant), harness.Receive(t, seen, "the first leads"))
	follower := startFollower(t, conn, node, leader, leaderelection.WithClientName("two"))
	leader.resign(t)
	next := follower.requireLeader(t)
	require.Equal(t, observationOf(follower, "two", next), harness.Receive(t, seen, "the second leads"))
	follower.resign(t)
	require.Equal(t, leaderelection.Observation{}, harness.Receive(t, seen, "nobody leads again"))

	// A reader that is late gets the newest.
	for range 3 {
		c, _ := startLeader(t, conn, node)
		c.resign(t)
	}
	last, grant := startLeader(t, conn, node, leaderelection.WithClientName("last"))
	o := harness.Receive(t, seen, "somebody leads")
	for o != observationOf(last, "last", grant) && (o.Leader == nil || *o.Leader != *observationOf(last, "last", grant).Leader) {
		o = harness.Receive(t, seen, "the last one leads")
	}

	// The observer's connection breaks, its session ends: it goes on.
	observer.ExpireSession(t)
	observer.Network.Restore()
	last.resign(t)
	require.Equal(t, leaderelection.Observation{}, harness.Receive(t, seen, "nobody leads, after the loss of the session"))

	require.NoError(t, leaderelection.DeleteElection(conn.Conn, node))
	require.ErrorIs(t, harness.Receive(t, seen, "the end").Err, leaderelection.ErrElectionOver)
	_, open := <-seen
	require.False(t, open)
}

func observationOf(c *candidate, name string, grant *leaderelection.Leadership) leaderelection.Observation {
	return leaderelection.Observation{Leader: &leaderelection.CandidateInfo{ID: c.ID(), Name: name, Token: grant.Token()}}
}

// The ends of an observation other than that of the election.
func TestObserveEnds(t *testing.T) {
	t.Parallel()
	conn, observer := connect(t), connect(t)
	node := createElectionNode(t, conn)
	startLeader(t, conn, node)

	ctx, cancel := context.WithCancel(t.Context())
	seen, err := leaderelection.Observe(ctx, observer.Conn, node)
	require.NoError(t, err)
	require.NotNil(t, harness.Receive(t, seen, "the leader").Leader)
	cancel()
	_, open := <-seen
	require.False(t, open, "the end of the context is no error")

	seen, err = leaderelection.Observe(t.Context(), observer.Conn, node)
	require.NoError(t, err)
	harness.Receive(t, seen, "the leader")
	observer.Close()
	require.ErrorIs(t, harness.Receive(t, seen, "the end").Err, leaderelection.ErrConnClosed)
	_, open = <-seen
	require.False(t, open)
}

// Candidates come in order of succession, CurrentLeader is the first.
func TestCandidates(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	all, err := leaderelection.Candidates(conn.Conn, node)
	require.NoError(t, err)
	require.Empty(t, all)
	_, found, err := leaderelection.CurrentLeader(conn.Conn, node)
	require.NoError(t, err)
	require.False(t, found)

	leader, grant := startLeader(t, conn, node, leaderelection.WithClientName("0"))
	line := []*candidate{leader}
	for i := range 11 {
		line = append(line, startFollower(t, conn, node, line[i], leaderelection.WithClientName(fmt.Sprint(i+1))))
	}
	line[5].resign(t)
	line[6].requireFollower(t, line[4])
	line = append(line[:5], line[6:]...)
	all, err = leaderelection.Candidates(conn.Conn, node)
	require.NoError(t, err)
	require.Len(t, all, len(line))
	for i, c := range line {
		require.Equal(t, c.ID(), all[i].ID)
		if i > 0 {
			require.Greater(t, all[i].Token, all[i-1].Token)
		}
	}
	require.Equal(t, leaderelection.CandidateInfo{ID: leader.ID(), Name: "0", Token: grant.Token()}, all[0])
	require.Equal(t, "11", all[10].Name)
	first, found, err := leaderelection.CurrentLeader(conn.Conn, node)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, all[0], first)
}
