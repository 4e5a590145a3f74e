package integrationtest

import (
	"path"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/integrationtest/internal/harness"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestEndElection_UnrecognizedChildren fails if a deletion changes something before it refuses because of
// unknown children.
func TestEndElection_UnrecognizedChildren(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	foreign, err := conn.Create(path.Join(node, "config"), nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	leader, grant := startLeader(t, conn, node)
	follower := startFollower(t, conn, node, leader)

	require.ErrorIs(t, leader.EndElection(), leaderelection.ErrForeignChildren)
	require.ErrorIs(t, follower.EndElection(), leaderelection.ErrForeignChildren)
	err = leaderelection.DeleteElection(conn.Conn, node)
	require.ErrorIs(t, err, leaderelection.ErrForeignChildren)
	require.ErrorContains(t, err, "config")
	leader.requireNoStatus(t, quietTime)
	follower.requireNoStatus(t, 0)
	require.NoError(t, grant.Err())
	require.ElementsMatch(t, []string{"config", znodeName(leader), znodeName(follower)}, listChildren(t, conn, node))

	require.NoError(t, conn.Delete(foreign, -1))
	electiontest.Confirm(t, follower.EndElection)
	leader.requireEnded(t, leaderelection.ErrElectionOver)
	follower.requireEnded(t, leaderelection.ErrElectionOver)
	require.False(t, znodeExists(t, conn, node))
}

// TestDeleteElection_Interrupted fails if the next call does not complete a deletion that was interrupted
// before or after any of its requests, or if a candidate becomes leader in between.
func TestDeleteElection_Interrupted(t *testing.T) {
	t.Parallel()
	const aFew, twoTransactions = 3, 210
	for k := 1; ; k++ {
		before := runInterruptedDeletion(t, aFew, k, zkproxy.CutBeforeRequest)
		after := runInterruptedDeletion(t, aFew, k, zkproxy.CutAfterApplied)
		// The number varies, because candidates delete their znodes at the same time.
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

// runInterruptedDeletion starts a deletion that permanently loses its connection at its k-th request. It
// returns false if the deletion has fewer requests.
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
	deleter.Network.Refuse() // after the fault
	err := leaderelection.DeleteElection(deleter.Conn, node, leaderelection.WithSessionTimeout(500*time.Millisecond))
	select {
	case <-cut.Done():
		interrupted = true
		require.ErrorIs(t, err, leaderelection.ErrUnconfirmed)
		require.ErrorIs(t, err, leaderelection.ErrUnreachable)
	default:
		if err != nil { // a busy server did not answer in time, which is an interruption too
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

// TestDeleteElection_NewCandidate fails if a new candidate can join during the deletion of the election.
func TestDeleteElection_NewCandidate(t *testing.T) {
	t.Parallel()
	conn, other := connect(t), connect(t)
	node := createElectionNode(t, conn)
	_, err := conn.Create(path.Join(node, "DONE"), []byte("done"), 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	c := newCandidate(t, other, node)
	c.startElecting()
	c.requireEnded(t, leaderelection.ErrElectionOver)
	_, err = leaderelection.Candidates(t.Context(), conn.Conn, node)
	require.ErrorIs(t, err, leaderelection.ErrElectionOver)
	_, err = leaderelection.Observe(t.Context(), conn.Conn, node)
	require.ErrorIs(t, err, leaderelection.ErrElectionOver)
	require.Equal(t, []string{"DONE"}, listChildren(t, conn, node))
	electiontest.Confirm(t, c.EndElection) // works after the candidacy too
	require.False(t, znodeExists(t, conn, node))
}

// TestEndElection_IdleCandidate calls EndElection of a candidate that has not started.
func TestEndElection_IdleCandidate(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	leader, grant := startLeader(t, conn, node)
	idle := newCandidate(t, conn, node)
	electiontest.Confirm(t, idle.EndElection)
	require.ErrorIs(t, (<-idle.Status()).Err, leaderelection.ErrElectionOver)
	idle.requireClosed(t)
	require.ErrorIs(t, idle.ElectLeader(), leaderelection.ErrElectionOver)
	leader.requireEnded(t, leaderelection.ErrElectionOver)
	require.Error(t, grant.Err())
	require.NoError(t, idle.EndElection())
	electiontest.Confirm(t, leader.EndElection)
}

// TestEndElection_WhileDisconnected fails if EndElection does not end the candidacy within two seconds, or
// does not end the election when the client has connected again.
func TestEndElection_WhileDisconnected(t *testing.T) {
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
	// The leader's znode may be deleted before the election is marked as over. The follower leads for a moment
	// then.
	all := follower.remainingStatuses(t)
	require.ErrorIs(t, all[len(all)-1].Err, leaderelection.ErrElectionOver)
	waitDeleted(t, other, node)
	electiontest.Confirm(t, leader.EndElection)
}

// TestEndElection_RecreatedElection fails if EndElection of an old candidate affects a new election at the
// same path.
func TestEndElection_RecreatedElection(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	old, _ := startLeader(t, conn, node)
	electiontest.Confirm(t, old.EndElection)
	old.requireEnded(t, leaderelection.ErrElectionOver)
	_, err := conn.Create(node, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	leader, grant := startLeader(t, conn, node)
	require.NoError(t, old.EndElection())
	leader.requireNoStatus(t, quietTime)
	require.NoError(t, grant.Err())
}

func isTombstone(path string) bool { return strings.HasSuffix(path, "/DONE") }

// TestTombstone_PreventsSuccession fails if a candidate becomes leader after a deletion that stopped after
// it has created the tombstone. The first follower sends no request when the leader leaves.
func TestTombstone_PreventsSuccession(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	leader, grant := startLeader(t, connect(t), node)
	second := startFollower(t, connect(t), node, leader)
	third := startFollower(t, connect(t), node, second)

	deleter := connectShort(t)
	// The first transaction creates the tombstone. The second would delete candidates.
	stop := deleter.Network[0].On(zkproxy.Rule{Op: zktest.OpMulti, K: 2, Action: zkproxy.CutBeforeRequest})
	deleter.Network.Refuse()
	err := leaderelection.DeleteElection(deleter.Conn, node)
	require.ErrorIs(t, err, leaderelection.ErrUnconfirmed)
	harness.Receive(t, stop.Done(), "the fault")

	second.requireEnded(t, leaderelection.ErrElectionOver) // because of the tombstone
	third.requireEnded(t, leaderelection.ErrElectionOver)
	require.NoError(t, grant.Err(), "the leader was notified")
	leader.resign(t)
	newcomer := startCandidate(t, conn, node)
	newcomer.requireEnded(t, leaderelection.ErrElectionOver)
	require.Equal(t, []string{"DONE"}, listChildren(t, conn, node))

	require.NoError(t, leaderelection.DeleteElection(conn.Conn, node), "the next call fails")
	waitDeleted(t, conn, node)
}

// TestTombstone_RecreatedElection fails if the tombstone of a deletion whose reply was lost is created in a
// new election that another client has created at the same path.
func TestTombstone_RecreatedElection(t *testing.T) {
	for name, enlisted := range map[string]bool{"empty election": false, "with a leader": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other := connect(t)
			node := createElectionNode(t, other)
			conn := connect(t)
			old := newCandidate(t, conn, node)
			var path func(string) bool
			if path = isTombstone; enlisted {
				startLeader(t, other, node)
				path = isBelow(node)
			}
			cut := conn.Network[0].On(zkproxy.Rule{Op: zktest.OpMulti, Path: path, Action: zkproxy.CutBeforeRequest})
			conn.Network.Refuse()
			ended := harness.InBackground(t, old.EndElection)
			harness.Receive(t, cut.Done(), "the tombstone")

			require.NoError(t, leaderelection.DeleteElection(other.Conn, node))
			_, err := other.Create(node, nil, 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			conn.Network.Restore()
			if err := harness.Receive(t, ended, "EndElection"); err != nil {
				require.ErrorIs(t, err, leaderelection.ErrUnconfirmed)
			}
			harness.Eventually(t, func() bool { return old.EndElection() == nil }, "the end of the election is not confirmed")

			_, grant := startLeader(t, other, node)
			require.NoError(t, grant.Err())
			require.Len(t, listChildren(t, other, node), 1)
		})
	}
}

// TestDelete_CandidateWithPredecessor fails if a candidate becomes leader although its znode was deleted
// together with its predecessor and before it, as by libraries that end an election without a tombstone.
func TestDelete_CandidateWithPredecessor(t *testing.T) {
	t.Parallel()
	conn, operator := connectShort(t), connectShort(t)
	for range 10 {
		node := createElectionNode(t, operator)
		leader, _ := startLeader(t, connectShort(t), node)
		second := startFollower(t, conn, node, leader)
		// Before the first check, the first follower would list the queue.
		harness.Eventually(t, func() bool { return conn.Network[0].Count(zktest.OpMulti) > 0 }, "the follower has not sent a check")
		_, err := operator.Multi(deleteRequest(second.ID()), deleteRequest(leader.ID()))
		require.NoError(t, err)
		second.requireEnded(t, leaderelection.ErrDeleted)
		conn.Network[0].ResetLog()
	}
}

// TestElectLeader_RecreatedElection fails if a candidate joins an election node that was deleted and created
// again after NewElection.
func TestElectLeader_RecreatedElection(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	old := newCandidate(t, conn, node)
	deleteZnode(t, conn, node)
	_, err := conn.Create(node, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	old.startElecting()
	old.requireEnded(t, leaderelection.ErrElectionOver)
	require.Empty(t, listChildren(t, conn, node))
	startLeader(t, conn, node)
}

// TestDelete_LeaderIsSuspendedFirst fails if a leader whose znode was deleted is not notified while it
// cannot find out the reason.
func TestDelete_LeaderIsSuspendedFirst(t *testing.T) {
	t.Parallel()
	conn, operator := connect(t), connect(t)
	node := createElectionNode(t, operator)
	leader, grant := startLeader(t, conn, node)
	held := conn.Network[0].On(zkproxy.Rule{
		Op: zktest.OpExists, Path: isBelow(node), Action: zkproxy.HoldReply, // the check for the tombstone
	})
	deleteZnode(t, operator, leader.ID())
	requireLost(t, grant, leaderelection.ErrDeleted)
	require.Equal(t, leaderelection.Suspended, leader.nextStatus(t).Role)
	held.Release()
	leader.requireEnded(t, leaderelection.ErrDeleted)
}

// TestEndElection_LaterCandidates fails if a candidate becomes leader after EndElection.
func TestEndElection_LaterCandidates(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	for range 20 {
		node := createElectionNode(t, conn)
		leader, _ := startLeader(t, conn, node)
		late := newCandidate(t, conn, node)
		electiontest.Confirm(t, leader.EndElection)
		leader.requireEnded(t, leaderelection.ErrElectionOver)
		late.startElecting()
		late.requireEnded(t, leaderelection.ErrElectionOver)
		_, err := leaderelection.NewElection(conn.Conn, node)
		require.ErrorIs(t, err, leaderelection.ErrNoElection)
	}
}

// TestDeleteElection_ChangedData fails if a candidate whose data has changed makes the deletion fail.
func TestDeleteElection_ChangedData(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	for _, end := range []func(*candidate) error{
		func(c *candidate) error { return c.EndElection() },
		func(c *candidate) error { return leaderelection.DeleteElection(conn.Conn, path.Dir(c.ID())) },
	} {
		node := createElectionNode(t, conn)
		_, err := conn.Set(node, []byte("so was the election node's"), -1)
		require.NoError(t, err)
		leader, _ := startLeader(t, conn, node)
		follower := startFollower(t, conn, node, leader)
		_, err = conn.Set(follower.ID(), []byte("changed"), -1)
		require.NoError(t, err)
		require.NoError(t, end(leader))
		leader.requireEnded(t, leaderelection.ErrElectionOver)
		follower.requireEnded(t, leaderelection.ErrElectionOver)
		require.False(t, znodeExists(t, conn, node))
	}
}

// TestDeleteElection_Missing fails if the deletion of a missing election is an error.
func TestDeleteElection_Missing(t *testing.T) {
	t.Parallel()
	require.NoError(t, leaderelection.DeleteElection(connect(t).Conn, harness.NewPath(t)))
}

// TestDelete_ElectionNode fails if a candidate does not notice that another program has deleted the
// election node.
func TestDelete_ElectionNode(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	leader, grant := startLeader(t, conn, node)
	follower := startFollower(t, conn, node, leader)

	names := listChildren(t, conn, node)
	require.Len(t, names, 2)
	begin := time.Now()
	for _, name := range names { // in any order, as deleteall of zkCli does
		require.NoError(t, conn.Delete(path.Join(node, name), -1))
	}
	require.NoError(t, conn.Delete(node, -1))
	<-grant.Done()
	for _, c := range []*candidate{leader, follower} {
		// A follower may become leader for a moment.
		all := c.remainingStatuses(t)
		require.NotEmpty(t, all)
		require.Error(t, all[len(all)-1].Err)
		require.Error(t, c.waitResult(t))
	}
	require.Less(t, time.Since(begin), sessionTimeout, "the candidates have ended with the session only")
}

// TestDeleteElection_AllCandidatesEnd fails if a candidate does not end with the election.
func TestDeleteElection_AllCandidatesEnd(t *testing.T) {
	t.Parallel()
	conn, other := connect(t), connect(t)
	node := createElectionNode(t, conn)
	leader, grant := startLeader(t, conn, node)
	all := []*candidate{leader}
	for range 4 {
		all = append(all, startFollower(t, other, node, all[len(all)-1]))
	}
	require.NoError(t, leaderelection.DeleteElection(conn.Conn, node))
	for _, c := range all {
		c.requireEnded(t, leaderelection.ErrElectionOver)
	}
	require.Error(t, grant.Err())
	require.False(t, znodeExists(t, conn, node))
}
