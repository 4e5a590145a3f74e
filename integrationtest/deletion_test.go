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
)

// The rules of EndElection and DeleteElection. The races are in race_test.go.

// Foreign children are a reason to refuse before anything is changed.
func TestEndRefusesForeignChildren(t *testing.T) {
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

// A deletion that was interrupted, before or after any of its requests, is
// finished by the next call; meanwhile nobody wins.
func TestEndInterrupted(t *testing.T) {
	t.Parallel()
	const aFew, twoTransactions = 3, 210
	for k := 1; ; k++ {
		before := runInterruptedDeletion(t, aFew, k, zkproxy.CutBeforeRequest)
		after := runInterruptedDeletion(t, aFew, k, zkproxy.CutAfterApplied)
		// The number varies: candidates leave by themselves meanwhile.
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

// runInterruptedDeletion has a deletion lose its connection for good at its k-th
// request. It returns false if there was none.
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
	deleter.Network.Refuse() // from then on
	err := leaderelection.DeleteElection(deleter.Conn, node, leaderelection.WithSessionTimeout(500*time.Millisecond))
	select {
	case <-cut.Done():
		interrupted = true
		require.ErrorIs(t, err, leaderelection.ErrUnconfirmed)
		require.ErrorIs(t, err, leaderelection.ErrUnreachable)
	default:
		if err != nil { // a busy machine did not answer in time, which is an interruption too
			interrupted = true
			require.ErrorIs(t, err, leaderelection.ErrUnconfirmed)
		}
	}

	if !znodeExists(t, conn, node) || znodeExists(t, conn, path.Join(node, "DONE")) {
		late.startElecting()
		late.requireEnded(t, leaderelection.ErrElectionOver)
		for _, c := range all[1:] {
			require.NotEqual(t, leaderelection.Leader, c.Current().Role, "a new leader")
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

// A newcomer gets the end of the election while it is being deleted.
func TestEndTellsNewcomers(t *testing.T) {
	t.Parallel()
	conn, elsewhere := connect(t), connect(t)
	node := createElectionNode(t, conn)
	_, err := conn.Create(path.Join(node, "DONE"), []byte("done"), 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	c := newCandidate(t, elsewhere, node)
	c.startElecting()
	c.requireEnded(t, leaderelection.ErrElectionOver)
	_, err = leaderelection.Candidates(conn.Conn, node)
	require.ErrorIs(t, err, leaderelection.ErrElectionOver)
	_, _, err = leaderelection.CurrentLeader(conn.Conn, node)
	require.ErrorIs(t, err, leaderelection.ErrElectionOver)
	_, err = leaderelection.Observe(t.Context(), conn.Conn, node)
	require.ErrorIs(t, err, leaderelection.ErrElectionOver)
	require.Equal(t, []string{"DONE"}, listChildren(t, conn, node))
	electiontest.Confirm(t, c.EndElection) // also after its candidacy
	require.False(t, znodeExists(t, conn, node))
}

// EndElection by a candidate that takes no part.
func TestEndByBystander(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	leader, grant := startLeader(t, conn, node)
	idle := newCandidate(t, conn, node)
	electiontest.Confirm(t, idle.EndElection)
	require.ErrorIs(t, (<-idle.Status()).Err, leaderelection.ErrElectionOver)
	idle.requireClosed(t)
	require.ErrorIs(t, idle.ElectLeader(), leaderelection.ErrCandidacyOver)
	leader.requireEnded(t, leaderelection.ErrElectionOver)
	require.Error(t, grant.Err())
	require.NoError(t, idle.EndElection())
	electiontest.Confirm(t, leader.EndElection)
}

// EndElection while ZooKeeper is out of reach ends the candidacy within two
// seconds and goes on in the background.
func TestEndWhileDisconnected(t *testing.T) {
	t.Parallel()
	conn, elsewhere := connect(t), connect(t)
	node := createElectionNode(t, conn)
	leader, grant := startLeader(t, conn, node)
	follower := startFollower(t, elsewhere, node, leader)
	conn.Network.Cut()
	begin := time.Now()
	require.ErrorIs(t, leader.EndElection(), leaderelection.ErrUnconfirmed)
	require.Less(t, time.Since(begin), resignLimit)
	require.Error(t, grant.Err())
	leader.requireEnded(t, leaderelection.ErrElectionOver)
	require.NoError(t, follower.Current().Err)

	conn.Network.Restore()
	// The own znode may be gone before the election is marked as over: then the
	// follower leads for a moment.
	all := follower.remainingStatuses(t)
	require.ErrorIs(t, all[len(all)-1].Err, leaderelection.ErrElectionOver)
	waitDeleted(t, elsewhere, node)
	electiontest.Confirm(t, leader.EndElection)
}

// An election node created anew at the same path is another election: an old
// candidate's EndElection leaves it alone.
func TestEndIsOfOneElection(t *testing.T) {
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

// The mark of an election's end and the identity of an election.

func isTombstone(path string) bool { return strings.HasSuffix(path, "/DONE") }

// A deletion that stops after the mark: from then on nobody wins, not even the
// second in line, which need not ask when the leader goes.
func TestMarkKeepsTheSecondFromWinning(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	leader, grant := startLeader(t, connect(t), node)
	second := startFollower(t, connect(t), node, leader)
	third := startFollower(t, connect(t), node, second)

	deleter := connectShort(t)
	// The first transaction is the mark; the second would delete candidates.
	stop := deleter.Network[0].On(zkproxy.Rule{Op: zkproxy.OpMulti, K: 2, Action: zkproxy.CutBeforeRequest})
	deleter.Network.Refuse()
	err := leaderelection.DeleteElection(deleter.Conn, node)
	require.ErrorIs(t, err, leaderelection.ErrUnconfirmed)
	harness.Receive(t, stop.Done(), "the deletion was not stopped")

	second.requireEnded(t, leaderelection.ErrElectionOver) // woken by the mark
	third.requireEnded(t, leaderelection.ErrElectionOver)
	require.NoError(t, grant.Err(), "nobody has told the leader")
	leader.resign(t)
	newcomer := startCandidate(t, conn, node)
	newcomer.requireEnded(t, leaderelection.ErrElectionOver)
	require.Equal(t, []string{"DONE"}, listChildren(t, conn, node))

	require.NoError(t, leaderelection.DeleteElection(conn.Conn, node), "the next call goes on")
	waitDeleted(t, conn, node)
}

// The reply to the mark gets lost, meanwhile somebody else ends the election
// and makes a new one: the mark must not get into that.
func TestMarkDoesNotReachANewElection(t *testing.T) {
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
			cut := conn.Network[0].On(zkproxy.Rule{Op: zkproxy.OpMulti, Path: path, Action: zkproxy.CutBeforeRequest})
			conn.Network.Refuse()
			ended := harness.InBackground(t, old.EndElection)
			harness.Receive(t, cut.Done(), "no mark was sent")

			require.NoError(t, leaderelection.DeleteElection(other.Conn, node))
			_, err := other.Create(node, nil, 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			conn.Network.Restore()
			if err := harness.Receive(t, ended, "EndElection does not return"); err != nil {
				require.ErrorIs(t, err, leaderelection.ErrUnconfirmed)
			}
			harness.Eventually(t, func() bool { return old.EndElection() == nil }, "the end is confirmed")

			_, grant := startLeader(t, other, node)
			require.NoError(t, grant.Err())
			require.Len(t, listChildren(t, other, node), 1)
		})
	}
}

// Whoever is deleted together with the predecessor, the own znode first, as by
// libraries that end an election without a mark, does not lead for a moment.
func TestOwnEndComesBeforeAClaim(t *testing.T) {
	t.Parallel()
	conn, operator := connectShort(t), connectShort(t)
	for range 10 {
		node := createElectionNode(t, operator)
		leader, _ := startLeader(t, connectShort(t), node)
		second := startFollower(t, conn, node, leader)
		// Until the lease is there the second in line would ask.
		harness.Eventually(t, func() bool { return conn.Network[0].Count(zkproxy.OpMulti) > 0 }, "a check")
		_, err := operator.Multi(deleteRequest(second.ID()), deleteRequest(leader.ID()))
		require.NoError(t, err)
		second.requireEnded(t, leaderelection.ErrCandidateDeleted)
		conn.Network[0].ResetLog()
	}
}

// A node that was deleted and created anew between NewElection and ElectLeader
// is another election than the one that the candidate was made for.
func TestCandidateOfARecreatedElection(t *testing.T) {
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

// A leader whose znode was deleted by hand, and who cannot find out why, is
// told all the same.
func TestDeletionIsToldBeforeItIsExplained(t *testing.T) {
	t.Parallel()
	conn, operator := connect(t), connect(t)
	node := createElectionNode(t, operator)
	leader, grant := startLeader(t, conn, node)
	held := conn.Network[0].On(zkproxy.Rule{
		Op: zkproxy.OpExists, Path: isBelow(node), Action: zkproxy.HoldReply, // is there an end marker?
	})
	deleteZnode(t, operator, leader.ID())
	requireLost(t, grant, leaderelection.ErrCandidateDeleted)
	require.Equal(t, leaderelection.Suspended, leader.nextStatus(t).Role)
	held.Release()
	leader.requireEnded(t, leaderelection.ErrCandidateDeleted)
}

// C4: EndElection did not end the election: the next to come led.
func TestC04EndElection(t *testing.T) {
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

// C16: a candidate whose data had been set made the deletion of the whole
// election fail, with the end marker left behind.
func TestC16DeleteAfterDataChange(t *testing.T) {
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

// Case: Delete Missing Election.
func TestDeleteMissingElection(t *testing.T) {
	t.Parallel()
	require.NoError(t, leaderelection.DeleteElection(connect(t).Conn, harness.NewPath(t)))
}

// Case: Election Node Deletion, by another program.
func TestElectionNodeDeletion(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	leader, grant := startLeader(t, conn, node)
	follower := startFollower(t, conn, node, leader)

	names := listChildren(t, conn, node)
	require.Len(t, names, 2)
	begin := time.Now()
	for _, name := range names { // as zkCli's deleteall, in no particular order
		require.NoError(t, conn.Delete(path.Join(node, name), -1))
	}
	require.NoError(t, conn.Delete(node, -1))
	<-grant.Done()
	for _, c := range []*candidate{leader, follower} {
		// A follower may lead for a moment.
		all := c.remainingStatuses(t)
		require.NotEmpty(t, all)
		require.Error(t, all[len(all)-1].Err)
		require.Error(t, c.waitResult(t))
	}
	require.Less(t, time.Since(begin), sessionTimeout, "and not by the end of the session")
}

// Case: intended 5, the election is deleted and all exit.
func TestElectionDeletedAllExit(t *testing.T) {
	t.Parallel()
	conn, elsewhere := connect(t), connect(t)
	node := createElectionNode(t, conn)
	leader, grant := startLeader(t, conn, node)
	all := []*candidate{leader}
	for range 4 {
		all = append(all, startFollower(t, elsewhere, node, all[len(all)-1]))
	}
	require.NoError(t, leaderelection.DeleteElection(conn.Conn, node))
	for _, c := range all {
		c.requireEnded(t, leaderelection.ErrElectionOver)
	}
	require.Error(t, grant.Err())
	require.False(t, znodeExists(t, conn, node))
}
