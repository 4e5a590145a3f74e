package integrationtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
)

// The contract of Candidate.Status. That a late reader gets the newest status
// is in TestC13LateReader.

// suspend cuts a leader's link until it is suspended, and restores it before
// the session is over.
func suspend(t *testing.T, conn *client, c *candidate) {
	t.Helper()
	session := conn.SessionID()
	conn.link.cut()
	eventually(t, func() bool { return c.Current().Role == leaderelection.Suspended }, "it is suspended")
	require.Nil(t, c.Current().Leadership)
	_, err := c.Multi()
	require.ErrorIs(t, err, leaderelection.ErrNotLeader)
	conn.link.restore()
	eventually(t, func() bool { return c.Current().Role == leaderelection.Leader }, "it leads again")
	require.Equal(t, session, conn.SessionID())
}

func TestStatusTellsOfTheEndOfALeadership(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	c, told := lead(t, conn, newNode(t, conn))
	suspend(t, conn, c)
	ends(t, told, leaderelection.ErrLeaseExpired)
	require.Equal(t, leaderelection.Suspended, c.next(t).Role, "the end of a leadership that was told of")
	again := c.leads(t)
	require.NotSame(t, told, again)
	require.Equal(t, told.Token(), again.Token())
	require.NoError(t, again.Err())
	require.True(t, again.Deadline().After(told.Deadline()))
	c.quiet(t, calm)
	require.ErrorIs(t, told.Err(), leaderelection.ErrLeaseExpired, "an ended leadership stays so")
}

func TestStatusKeepsWhatNobodyWasTold(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	c := enlist(t, conn, newNode(t, conn))
	eventually(t, func() bool { return c.Current().Role == leaderelection.Leader }, "it leads")
	old := c.Current().Leadership
	suspend(t, conn, c)
	require.NotSame(t, old, c.leads(t))
	c.quiet(t, calm)
}

// The final status is delivered to a reader that comes when all is over.
func TestStatusEndsWithTheError(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := newNode(t, conn)
	told, _ := lead(t, conn, node)
	late := enlist(t, conn, node)
	eventually(t, func() bool { return late.Current().NowFollowing == told.ID() }, "it follows")
	require.NoError(t, leaderelection.DeleteElection(conn.Conn, node))
	for _, c := range []*candidate{told, late} {
		require.ErrorIs(t, c.result(t), leaderelection.ErrElectionOver)
		all := c.rest(t)
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
	c := enlist(t, conn, newNode(t, conn))
	eventually(t, func() bool { return c.Current().Role == leaderelection.Leader }, "it leads")
	grant := c.Current().Leadership
	electiontest.Confirm(t, c.Resign)
	require.ErrorIs(t, grant.Err(), leaderelection.ErrResigned)
	c.closesSilently(t)
	require.Equal(t, leaderelection.Status{CandidateID: c.ID()}, c.Current())
}
