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
