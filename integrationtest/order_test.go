package integrationtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
)

// TestOrder_SeveralCandidatesExpire fails if a follower does not become leader after the three candidates
// before it have lost their session together.
func TestOrder_SeveralCandidatesExpire(t *testing.T) {
	t.Parallel()
	conn, other := connect(t), connect(t)
	node := createElectionNode(t, conn)
	leader, _ := startLeader(t, conn, node)
	f1 := startFollower(t, conn, node, leader)
	f2 := startFollower(t, conn, node, f1)
	last := startFollower(t, other, node, f2)
	conn.ExpireSession(t)
	s := last.nextStatus(t)
	for s.Role != leaderelection.Leader { // it may see any number of them leave one by one
		require.NoError(t, s.Err)
		require.Contains(t, []string{leader.ID(), f1.ID()}, s.NowFollowing)
		s = last.nextStatus(t)
	}
}

// TestOrder_OneLeader fails if several of many candidates become leader, or if two follow the same
// candidate.
func TestOrder_OneLeader(t *testing.T) {
	t.Parallel()
	conns := []*client{connect(t), connect(t), connect(t)}
	node := createElectionNode(t, conns[0])
	var all []*candidate
	for i := range 30 {
		all = append(all, startCandidate(t, conns[i%len(conns)], node))
	}
	leaders, followed := 0, map[string]bool{}
	for _, c := range all {
		s := c.nextStatus(t)
		if s.Role == leaderelection.Leader {
			leaders++
			continue
		}
		require.False(t, followed[s.NowFollowing], "two candidates follow %s", s.NowFollowing)
		followed[s.NowFollowing] = true
	}
	require.Equal(t, 1, leaders)
	for _, c := range all {
		c.requireNoStatus(t, 10*time.Millisecond)
	}
}
