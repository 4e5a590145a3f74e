package integrationtest

import (
	"context"
	"path"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/integrationtest/internal/harness"
)

// candidate is an Election whose ElectLeader runs.
type candidate struct {
	*leaderelection.Election

	returned chan struct{} // closed when ElectLeader has returned
	err      error         // what it returned
}

// newCandidate makes a candidate that does not take part yet.
func newCandidate(t testing.TB, conn *client, node string, opts ...leaderelection.Option) *candidate {
	t.Helper()
	opts = append([]leaderelection.Option{leaderelection.WithSessionTimeout(conn.Timeout)}, opts...)
	e, err := leaderelection.NewElection(conn.Conn, node, opts...)
	require.NoError(t, err)
	return &candidate{Election: e, returned: make(chan struct{})}
}

func (c *candidate) startElecting() {
	go func() {
		defer close(c.returned)
		c.err = c.ElectLeader()
	}()
}

// startCandidate makes a candidate and has it take part until the test's end.
func startCandidate(t testing.TB, conn *client, node string, opts ...leaderelection.Option) *candidate {
	t.Helper()
	c := newCandidate(t, conn, node, opts...)
	c.startElecting()
	t.Cleanup(func() {
		_ = c.Resign() // the connection may be gone
		<-c.returned
	})
	return c
}

// startLeader enlists a candidate that leads at once.
func startLeader(t testing.TB, conn *client, node string, opts ...leaderelection.Option) (*candidate, *leaderelection.Leadership) {
	t.Helper()
	c := startCandidate(t, conn, node, opts...)
	return c, c.requireLeader(t)
}

// startFollower enlists a candidate that follows another.
func startFollower(t testing.TB, conn *client, node string, ahead *candidate, opts ...leaderelection.Option) *candidate {
	t.Helper()
	c := startCandidate(t, conn, node, opts...)
	c.requireFollower(t, ahead)
	return c
}

// nextStatus waits for a status.
func (c *candidate) nextStatus(t testing.TB) leaderelection.Status {
	t.Helper()
	select {
	case s, ok := <-c.Status():
		require.True(t, ok, "the channel is closed")
		require.Equal(t, s.Role == leaderelection.Leader, s.Leadership != nil, "leadership of %v", s)
		return s
	case <-time.After(harness.WaitLimit):
		require.Fail(t, "no status")
		panic("unreachable")
	}
}

// requireLeader waits for the status of a leader, which must be the next one.
func (c *candidate) requireLeader(t testing.TB) *leaderelection.Leadership {
	t.Helper()
	s := c.nextStatus(t)
	require.Equal(t, leaderelection.Leader, s.Role, "%v", s)
	require.NoError(t, s.Err)
	require.Empty(t, s.NowFollowing)
	require.Equal(t, c.ID(), s.CandidateID)
	require.NotZero(t, s.Leadership.Token())
	return s.Leadership
}

// requireFollower waits for the status of a follower, which must be the next one.
func (c *candidate) requireFollower(t testing.TB, ahead *candidate) leaderelection.Status {
	t.Helper()
	s := c.nextStatus(t)
	require.Equal(t, leaderelection.Follower, s.Role, "%v", s)
	require.NoError(t, s.Err)
	require.Equal(t, ahead.ID(), s.NowFollowing)
	require.Equal(t, c.ID(), s.CandidateID)
	return s
}

// remainingStatuses reads the channel until it is closed.
func (c *candidate) remainingStatuses(t testing.TB) (all []leaderelection.Status) {
	t.Helper()
	limit := time.After(harness.WaitLimit)
	for {
		select {
		case s, ok := <-c.Status():
			if !ok {
				return all
			}
			all = append(all, s)
		case <-limit:
			require.Fail(t, "the channel stays open", "read %v", all)
		}
	}
}

// requireEnded waits for the end of the candidacy and checks that it is told of once,
// by the last status. Those before may be of a leader who is suspended.
func (c *candidate) requireEnded(t testing.TB, reason error) {
	t.Helper()
	all := c.remainingStatuses(t)
	require.NotEmpty(t, all, "the channel was closed without a final status")
	for _, s := range all[:len(all)-1] {
		require.NoError(t, s.Err, "only the final status has an error: %v", all)
		require.Equal(t, leaderelection.Suspended, s.Role, "%v", all)
	}
	final := all[len(all)-1]
	require.ErrorIs(t, final.Err, reason)
	require.Equal(t, leaderelection.Follower, final.Role)
	require.Nil(t, final.Leadership)
	require.ErrorIs(t, c.waitResult(t), reason)
}

// waitResult waits until ElectLeader returns.
func (c *candidate) waitResult(t testing.TB) error {
	t.Helper()
	select {
	case <-c.returned:
		return c.err
	case <-time.After(harness.WaitLimit):
		require.Fail(t, "ElectLeader does not return")
		return nil
	}
}

// requireClosedWithoutStatus waits for the channel's close, before which nothing must come.
func (c *candidate) requireClosedWithoutStatus(t testing.TB) {
	t.Helper()
	select {
	case s, ok := <-c.Status():
		require.False(t, ok, "got %v", s)
	case <-time.After(harness.WaitLimit):
		require.Fail(t, "the channel is not closed")
	}
}

// requireClosed checks that the channel is closed already, and nothing is left in it.
func (c *candidate) requireClosed(t testing.TB) {
	t.Helper()
	select {
	case s, ok := <-c.Status():
		require.False(t, ok, "got %v", s)
	default:
		require.Fail(t, "the channel is not closed")
	}
}

// requireNoStatus checks that no status comes for a while.
func (c *candidate) requireNoStatus(t testing.TB, d time.Duration) {
	t.Helper()
	limit := time.After(max(d, time.Millisecond)) // a ready channel must win
	select {
	case s, ok := <-c.Status():
		require.Fail(t, "unexpected status", "%v, open: %v", s, ok)
	case <-limit:
	}
}

// resign withdraws the candidate and checks that all is well.
func (c *candidate) resign(t testing.TB) {
	t.Helper()
	electiontest.Confirm(t, c.Resign)
	c.requireClosedWithoutStatus(t)
	require.NoError(t, c.waitResult(t))
}

// requireLost waits for the end of a leadership and checks why.
func requireLost(t testing.TB, l *leaderelection.Leadership, reason error) {
	t.Helper()
	select {
	case <-l.Done():
	case <-time.After(harness.WaitLimit):
		require.Fail(t, "the leadership does not end")
	}
	require.ErrorIs(t, l.Err(), reason)
	require.Error(t, l.Context().Err())
	require.ErrorIs(t, context.Cause(l.Context()), reason)
}

func znodeName(c *candidate) string { return path.Base(c.ID()) }

// electionNode is the election node of a candidate that takes part.
func electionNode(c *candidate) string { return path.Dir(c.ID()) }
