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

// The contract of Candidate.Status. That a late reader gets the newest status
// is in TestC13LateReader.

// suspendLeader cuts a leader's link until it is suspended, and restores it before
// the session is over.
func suspendLeader(t *testing.T, conn *client, c *candidate) {
	t.Helper()
	session := conn.SessionID()
	conn.Network.Cut()
	harness.Eventually(t, func() bool { return c.Current().Role == leaderelection.Suspended }, "it is suspended")
	require.Nil(t, c.Current().Leadership)
	_, err := c.Multi()
	require.ErrorIs(t, err, leaderelection.ErrNotLeader)
	conn.Network.Restore()
	harness.Eventually(t, func() bool { return c.Current().Role == leaderelection.Leader }, "it leads again")
	require.Equal(t, session, conn.SessionID())
}

func TestStatusTellsOfTheEndOfALeadership(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	c, told := startLeader(t, conn, createElectionNode(t, conn))
	suspendLeader(t, conn, c)
	requireLost(t, told, leaderelection.ErrLeaseExpired)
	require.Equal(t, leaderelection.Suspended, c.nextStatus(t).Role, "the end of a leadership that was told of")
	again := c.requireLeader(t)
	require.NotSame(t, told, again)
	require.Equal(t, told.Token(), again.Token())
	require.NoError(t, again.Err())
	require.True(t, again.Deadline().After(told.Deadline()))
	c.requireNoStatus(t, quietTime)
	require.ErrorIs(t, told.Err(), leaderelection.ErrLeaseExpired, "an ended leadership stays so")
}

func TestStatusKeepsWhatNobodyWasTold(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	c := startCandidate(t, conn, createElectionNode(t, conn))
	harness.Eventually(t, func() bool { return c.Current().Role == leaderelection.Leader }, "it leads")
	old := c.Current().Leadership
	suspendLeader(t, conn, c)
	require.NotSame(t, old, c.requireLeader(t))
	c.requireNoStatus(t, quietTime)
}

// The final status is delivered to a reader that comes when all is over.
func TestStatusEndsWithTheError(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	told, _ := startLeader(t, conn, node)
	late := startCandidate(t, conn, node)
	harness.Eventually(t, func() bool { return late.Current().NowFollowing == told.ID() }, "it follows")
	require.NoError(t, leaderelection.DeleteElection(conn.Conn, node))
	for _, c := range []*candidate{told, late} {
		require.ErrorIs(t, c.waitResult(t), leaderelection.ErrElectionOver)
		all := c.remainingStatuses(t)
		require.Len(t, all, 1)
		require.ErrorIs(t, all[0].Err, leaderelection.ErrElectionOver)
		require.Equal(t, c.ID(), all[0].CandidateID)
		require.Equal(t, all[0], c.Current())
	}
}

// Resign withdraws what was not read, and has no status of its own.
func TestStatusAfterResign(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	c := startCandidate(t, conn, createElectionNode(t, conn))
	harness.Eventually(t, func() bool { return c.Current().Role == leaderelection.Leader }, "it leads")
	grant := c.Current().Leadership
	electiontest.Confirm(t, c.Resign)
	require.ErrorIs(t, grant.Err(), leaderelection.ErrResigned)
	c.requireClosedWithoutStatus(t)
	require.Equal(t, leaderelection.Status{CandidateID: c.ID()}, c.Current())
}

// C13: a reader that was late blocked the election and got outdated statuses.
func TestC13LateReader(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	leader, _ := startLeader(t, conn, node)
	line := []*candidate{leader}
	for range 4 {
		line = append(line, startFollower(t, conn, node, line[len(line)-1]))
	}
	late := startCandidate(t, conn, node)
	harness.Eventually(t, func() bool { return late.Current().NowFollowing == line[4].ID() }, "it follows")
	for i := 4; i > 0; i-- {
		line[i].resign(t)
		harness.Eventually(t, func() bool { return late.Current().NowFollowing == line[i-1].ID() }, "it follows the next")
	}
	leader.resign(t)
	harness.Eventually(t, func() bool { return late.Current().Role == leaderelection.Leader }, "it leads")
	late.requireLeader(t)
	late.requireNoStatus(t, quietTime)
}

// C15: the candidate's ID was read and written without synchronisation; the
// race detector is the judge.
func TestC15DataRace(t *testing.T) {
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
		harness.Eventually(t, func() bool { return c.ID() != "" }, "it takes part")
	}
	for _, c := range all {
		electiontest.Confirm(t, c.Resign)
	}
	close(stop)
	wg.Wait()
}

// Scenario: a client asks for the state, of its candidate and of the election.
func TestQueryState(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	leader, grant := startLeader(t, conn, node, leaderelection.WithClientName("one"))
	follower := startFollower(t, conn, node, leader, leaderelection.WithClientName("two"))
	require.Equal(t, leaderelection.Status{
		CandidateID: leader.ID(), Role: leaderelection.Leader, Leadership: grant,
	}, leader.Current())
	require.Equal(t, leaderelection.Status{
		CandidateID: follower.ID(), NowFollowing: leader.ID(),
	}, follower.Current())
	info, found, err := leaderelection.CurrentLeader(conn.Conn, node)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, leaderelection.CandidateInfo{ID: leader.ID(), Name: "one", Token: grant.Token()}, info)
}

// Case: Initialization, by a client that does not take part; several clients
// share the connection and have several elections.
func TestInitialization(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node, other := createElectionNode(t, conn), createElectionNode(t, conn)
	idle := newCandidate(t, conn, node)
	require.Empty(t, idle.ID())
	require.Equal(t, leaderelection.Status{}, idle.Current())
	require.Empty(t, listChildren(t, conn, node), "NewElection has enlisted the candidate")

	startLeader(t, conn, node)
	startLeader(t, conn, other)
	require.Empty(t, idle.Status())
}

// A second ElectLeader changes nothing for the first.
func TestSecondElectLeader(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	c, grant := startLeader(t, conn, node)
	require.ErrorIs(t, c.ElectLeader(), leaderelection.ErrAlreadyStarted)
	c.requireNoStatus(t, quietTime)
	require.NoError(t, grant.Err())
	require.Equal(t, []string{znodeName(c)}, listChildren(t, conn, node))
}
