package integrationtest

import (
	"context"
	"path"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// candidate is an Election and the result of its ElectLeader.
type candidate struct {
	*leaderelection.Election

	returned chan struct{} // closed when ElectLeader has returned
	err      error         // the result of ElectLeader
}

// multi executes a transaction on the condition that the candidate still has its current leadership.
func (c *candidate) multi(ops ...any) ([]zk.MultiResponse, error) {
	l := c.Current().Leadership
	if l == nil {
		return nil, leaderelection.ErrNotLeader
	}
	return l.Multi(ops...)
}

// newCandidate creates a candidate, but does not call ElectLeader.
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

// startCandidate creates a candidate and calls ElectLeader. The candidate resigns when the test ends.
func startCandidate(t testing.TB, conn *client, node string, opts ...leaderelection.Option) *candidate {
	t.Helper()
	c := newCandidate(t, conn, node, opts...)
	c.startElecting()
	t.Cleanup(func() {
		_ = c.Resign() // Resign fails if the connection is closed
		<-c.returned
	})
	return c
}

// startLeader starts a candidate that must become the leader immediately, and returns its leadership.
func startLeader(t testing.TB, conn *client, node string, opts ...leaderelection.Option) (*candidate, *leaderelection.Leadership) {
	t.Helper()
	c := startCandidate(t, conn, node, opts...)
	return c, c.requireLeader(t)
}

// startFollower starts a candidate, and requires that it follows the candidate ahead.
func startFollower(t testing.TB, conn *client, node string, ahead *candidate, opts ...leaderelection.Option) *candidate {
	t.Helper()
	c := startCandidate(t, conn, node, opts...)
	c.requireFollower(t, ahead)
	return c
}

// nextStatus waits for the next status. It skips a status which only states that the candidate is the next one now,
// because it depends on timing whether that status precedes the next change.
func (c *candidate) nextStatus(t testing.TB) leaderelection.Status {
	t.Helper()
	for limit := time.After(testenv.WaitLimit); ; {
		select {
		case s, ok := <-c.Status():
			require.True(t, ok, "the channel is closed")
			require.Equal(t, s.Role == leaderelection.Leader, s.Leadership != nil, "leadership of %v", s)
			if s.Role != leaderelection.Follower || !s.Next || s.NowFollowing != s.WasFollowing {
				return s
			}
		case <-limit:
			require.Fail(t, "no status")
			panic("unreachable")
		}
	}
}

// requireLeader requires that the next status reports that the candidate is the leader, and returns its leadership.
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

// requireFollower requires that the next status reports that the candidate follows the candidate ahead.
func (c *candidate) requireFollower(t testing.TB, ahead *candidate) leaderelection.Status {
	t.Helper()
	s := c.nextStatus(t)
	require.Equal(t, leaderelection.Follower, s.Role, "%v", s)
	require.NoError(t, s.Err)
	require.Equal(t, ahead.ID(), s.NowFollowing)
	require.Equal(t, c.ID(), s.CandidateID)
	return s
}

// remainingStatuses reads the statuses until the channel is closed, and returns them.
func (c *candidate) remainingStatuses(t testing.TB) (all []leaderelection.Status) {
	t.Helper()
	limit := time.After(testenv.WaitLimit)
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

// requireEnded requires that the candidacy ends with the error reason, which only the final status and
// ElectLeader report. Statuses before the final one may report that the leader is suspended.
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

// waitResult waits until ElectLeader returns, and returns the result of ElectLeader.
func (c *candidate) waitResult(t testing.TB) error {
	t.Helper()
	select {
	case <-c.returned:
		return c.err
	case <-time.After(testenv.WaitLimit):
		require.Fail(t, "ElectLeader does not return")
		return nil
	}
}

// requireClosedWithoutStatus requires that the candidate closes its Status channel without another status.
func (c *candidate) requireClosedWithoutStatus(t testing.TB) {
	t.Helper()
	select {
	case s, ok := <-c.Status():
		require.False(t, ok, "got %v", s)
	case <-time.After(testenv.WaitLimit):
		require.Fail(t, "the channel is not closed")
	}
}

// requireNoStatus requires that the candidate delivers no status within d.
func (c *candidate) requireNoStatus(t testing.TB, d time.Duration) {
	t.Helper()
	limit := time.After(max(d, time.Millisecond)) // more than 0, so that a status which is ready already is received
	select {
	case s, ok := <-c.Status():
		require.Fail(t, "unexpected status", "%v, open: %v", s, ok)
	case <-limit:
	}
}

// resign calls Resign until the resignation is confirmed, and requires that the candidacy ends without an error.
func (c *candidate) resign(t testing.TB) {
	t.Helper()
	electiontest.Confirm(t, c.Resign)
	c.requireClosedWithoutStatus(t)
	require.NoError(t, c.waitResult(t))
}

// requireLost waits until the leadership ends, and requires that the reason is the given error.
func requireLost(t testing.TB, l *leaderelection.Leadership, reason error) {
	t.Helper()
	select {
	case <-l.Done():
	case <-time.After(testenv.WaitLimit):
		require.Fail(t, "the leadership does not end")
	}
	require.ErrorIs(t, l.Err(), reason)
	require.Error(t, l.Context().Err())
	require.ErrorIs(t, context.Cause(l.Context()), reason)
}

func znodeName(c *candidate) string { return path.Base(c.ID()) }
