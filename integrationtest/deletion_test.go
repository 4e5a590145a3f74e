package integrationtest

import (
	"path"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
)

// TestDeleteElection_CompletesInterruptedDeletion checks that DeleteElection completes an earlier deletion that lost
// its connection before or after any of its requests, and that no candidate becomes leader between the two calls.
func TestDeleteElection_CompletesInterruptedDeletion(t *testing.T) {
	t.Parallel()
	const aFew, twoTransactions = 3, 210
	for k := 1; ; k++ {
		before := runInterruptedDeletion(t, aFew, k, zkproxy.CutBeforeRequest)
		after := runInterruptedDeletion(t, aFew, k, zkproxy.CutAfterApplied)
		// Stop when k exceeds the number of requests of both deletions. The numbers may differ, because candidates
		// delete their znodes at the same time.
		if !before && !after {
			t.Logf("a deletion has at most %d requests", k-1)
			require.Greater(t, k-1, 3)
			break
		}
		if k > 3 {
			runInterruptedDeletion(t, twoTransactions, k, zkproxy.CutAfterApplied)
		}
	}
}

// runInterruptedDeletion calls DeleteElection on a connection that permanently breaks at the k-th request of the
// deletion, and then requires that another call completes the deletion. It returns false if the deletion has fewer
// requests than k.
func runInterruptedDeletion(t *testing.T, candidates, k int, action zkproxy.Action) (interrupted bool) {
	t.Helper()
	conn, deleter := connectDirectly(t), connect(t)
	node := createElectionNode(t, conn)
	late := newCandidate(t, conn, node)
	leader, grant := startLeader(t, conn, node)
	all := []*candidate{leader}
	for range candidates - 1 {
		all = append(all, startCandidate(t, conn, node))
	}
	for _, c := range all[1:] {
		require.Equal(t, leaderelection.Follower, c.nextStatus(t).Role)
	}

	cut := deleter.Network[0].On(zkproxy.Rule{Op: zkproxy.OpAny, K: k, Action: action})
	deleter.Network.Refuse() // keep the client from connecting again after the fault
	err := leaderelection.DeleteElection(deleter.Conn, node, leaderelection.WithSessionTimeout(500*time.Millisecond))
	select {
	case <-cut.Done():
		interrupted = true
		require.ErrorIs(t, err, leaderelection.ErrUnconfirmed)
		require.ErrorIs(t, err, leaderelection.ErrUnreachable)
	default:
		if err != nil { // a busy server that did not answer in time has interrupted the deletion as well
			interrupted = true
			require.ErrorIs(t, err, leaderelection.ErrUnconfirmed)
		}
	}

	if !znodeExists(t, conn, node) || znodeExists(t, conn, path.Join(node, "DONE")) {
		late.startElecting()
		late.requireEnded(t, leaderelection.ErrElectionOver)
		for _, c := range all[1:] {
			require.NotEqual(t, leaderelection.Leader, c.Current().Role, "a candidate leads")
		}
	}
	require.NoError(t, leaderelection.DeleteElection(conn.Conn, node))
	for _, c := range all {
		c.requireEnded(t, leaderelection.ErrElectionOver)
	}
	require.Error(t, grant.Err())
	require.False(t, znodeExists(t, conn, node))
	return interrupted
}

// TestEndElection_EndsElectionAfterReconnect checks that EndElection without a connection ends the caller's candidacy
// within two seconds, and ends the election when the client has connected again.
func TestEndElection_EndsElectionAfterReconnect(t *testing.T) {
	t.Parallel()
	conn, other := connect(t), connect(t)
	node := createElectionNode(t, conn)
	leader, grant := startLeader(t, conn, node)
	follower := startFollower(t, other, node, leader)
	conn.Network.Cut()
	begin := time.Now()
	require.ErrorIs(t, leader.EndElection(), leaderelection.ErrUnconfirmed)
	require.Less(t, time.Since(begin), resignLimit)
	require.Error(t, grant.Err())
	leader.requireEnded(t, leaderelection.ErrElectionOver)
	require.NoError(t, follower.Current().Err)

	conn.Network.Restore()
	// The leader's znode may be deleted before the election is marked as over. In that case the follower leads for a
	// moment.
	all := follower.remainingStatuses(t)
	require.ErrorIs(t, all[len(all)-1].Err, leaderelection.ErrElectionOver)
	waitDeleted(t, other, node)
	electiontest.Confirm(t, leader.EndElection)
}
