package integrationtest

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/integrationtest/internal/harness"
)

// suspendLeader cuts a leader's connection until the leader is suspended, and restores it before the session
// expires.
func suspendLeader(t *testing.T, conn *client, c *candidate) {
	t.Helper()
	session := conn.SessionID()
	conn.Network.Cut()
	harness.Eventually(t, func() bool { return c.Current().Role == leaderelection.Suspended }, "the leader is not suspended")
	require.Nil(t, c.Current().Leadership)
	_, err := c.multi()
	require.ErrorIs(t, err, leaderelection.ErrNotLeader)
	conn.Network.Restore()
	harness.Eventually(t, func() bool { return c.Current().Role == leaderelection.Leader }, "the candidate does not lead again")
	require.Equal(t, session, conn.SessionID())
}

func TestStatus_SuspendedLeader(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	c, first := startLeader(t, conn, createElectionNode(t, conn))
	suspendLeader(t, conn, c)
	requireLost(t, first, leaderelection.ErrLeaseExpired)
	require.Equal(t, leaderelection.Suspended, c.nextStatus(t).Role, "the end of the reported leadership")
	second := c.requireLeader(t)
	require.NotSame(t, first, second)
	require.Equal(t, first.Token(), second.Token())
	require.NoError(t, second.Err())
	require.True(t, second.Deadline().After(first.Deadline()))
	c.requireNoStatus(t, quietTime)
	require.ErrorIs(t, first.Err(), leaderelection.ErrLeaseExpired, "the error of the ended leadership has changed")
}

func TestStatus_SuspensionWithoutReader(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	c := startCandidate(t, conn, createElectionNode(t, conn))
	harness.Eventually(t, func() bool { return c.Current().Role == leaderelection.Leader }, "the candidate does not lead")
	old := c.Current().Leadership
	suspendLeader(t, conn, c)
	require.NotSame(t, old, c.requireLeader(t))
	c.requireNoStatus(t, quietTime)
}

// TestStatus_FinalStatus fails if a reader that starts after the election has ended misses the final
// status.
func TestStatus_FinalStatus(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	leader, _ := startLeader(t, conn, node)
	late := startCandidate(t, conn, node)
	harness.Eventually(t, func() bool { return late.Current().NowFollowing == leader.ID() }, "the candidate does not follow its predecessor")
	require.NoError(t, leaderelection.DeleteElection(conn.Conn, node))
	for _, c := range []*candidate{leader, late} {
		require.ErrorIs(t, c.waitResult(t), leaderelection.ErrElectionOver)
		all := c.remainingStatuses(t)
		require.Len(t, all, 1)
		require.ErrorIs(t, all[0].Err, leaderelection.ErrElectionOver)
		require.Equal(t, c.ID(), all[0].CandidateID)
		require.Equal(t, all[0], c.Current())
	}
}

// TestStatus_AfterResign fails if a status can be read after Resign.
func TestStatus_AfterResign(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	c := startCandidate(t, conn, createElectionNode(t, conn))
	harness.Eventually(t, func() bool { return c.Current().Role == leaderelection.Leader }, "the candidate does not lead")
	grant := c.Current().Leadership
	electiontest.Confirm(t, c.Resign)
	require.ErrorIs(t, grant.Err(), leaderelection.ErrResigned)
	c.requireClosedWithoutStatus(t)
	require.Equal(t, leaderelection.Status{CandidateID: c.ID()}, c.Current())
}

// TestStatus_ConcurrentReads fails under the race detector if the state of a candidate is accessed without
// synchronisation.
func TestStatus_ConcurrentReads(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	var all []*candidate
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		c := newCandidate(t, conn, node)
		all = append(all, c)
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
				s := c.Current()
				_ = c.ID() + s.String() + s.Role.String()
				if s.Leadership != nil {
					_, _ = s.Leadership.Err(), s.Leadership.Deadline()
				}
			}
		})
	}
	for _, c := range all {
		c.startElecting()
	}
	for _, c := range all {
		harness.Eventually(t, func() bool { return c.ID() != "" }, "the candidate does not join")
	}
	for _, c := range all {
		electiontest.Confirm(t, c.Resign)
	}
	close(stop)
	wg.Wait()
}

// TestStatus_Current fails if Current or Candidates differs from the statuses.
func TestStatus_Current(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	leader, grant := startLeader(t, conn, node, leaderelection.WithName("one"))
	follower := startFollower(t, conn, node, leader, leaderelection.WithName("two"))
	require.Equal(t, leaderelection.Status{
		CandidateID: leader.ID(), Role: leaderelection.Leader, Leadership: grant,
	}, leader.Current())
	require.Equal(t, leaderelection.Status{
		CandidateID: follower.ID(), NowFollowing: leader.ID(),
	}, follower.Current())
	all, err := leaderelection.Candidates(t.Context(), conn.Conn, node)
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, leaderelection.CandidateInfo{ID: leader.ID(), Name: "one", Token: grant.Token()}, all[0])
}

// TestStatus_BeforeStart fails if NewElection joins the election.
func TestStatus_BeforeStart(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node, other := createElectionNode(t, conn), createElectionNode(t, conn)
	idle := newCandidate(t, conn, node)
	require.Empty(t, idle.ID())
	require.Equal(t, leaderelection.Status{}, idle.Current())
	require.Empty(t, listChildren(t, conn, node), "NewElection has joined the election")

	startLeader(t, conn, node)
	startLeader(t, conn, other)
	require.Empty(t, idle.Status())
}
