package integrationtest

import (
	"path"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
)

// The rules of EndElection and DeleteElection. The races are in race_test.go.

// Foreign children are a reason to refuse before anything is changed.
func TestEndRefusesForeignChildren(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := newNode(t, conn)
	foreign, err := conn.Create(path.Join(node, "config"), nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	leader, grant := lead(t, conn, node)
	follower := follow(t, conn, node, leader)

	require.ErrorIs(t, leader.EndElection(), leaderelection.ErrForeignChildren)
	require.ErrorIs(t, follower.EndElection(), leaderelection.ErrForeignChildren)
	err = leaderelection.DeleteElection(conn.Conn, node)
	require.ErrorIs(t, err, leaderelection.ErrForeignChildren)
	require.ErrorContains(t, err, "config")
	leader.quiet(t, calm)
	follower.quiet(t, 0)
	require.NoError(t, grant.Err())
	require.ElementsMatch(t, []string{"config", base(leader), base(follower)}, children(t, conn, node))

	require.NoError(t, conn.Delete(foreign, -1))
	electiontest.Confirm(t, follower.EndElection)
	leader.ends(t, leaderelection.ErrElectionOver)
	follower.ends(t, leaderelection.ErrElectionOver)
	require.False(t, exists(t, conn, node))
}

// A deletion that was interrupted, before or after any of its requests, is
// finished by the next call; meanwhile nobody wins.
func TestEndInterrupted(t *testing.T) {
	t.Parallel()
	const aFew, twoTransactions = 3, 210
	for k := 1; ; k++ {
		before := interruptDeletion(t, aFew, k, zkproxy.CutBeforeRequest)
		after := interruptDeletion(t, aFew, k, zkproxy.CutAfterApplied)
		// The number varies: candidates leave by themselves meanwhile.
		if !before && !after {
			t.Logf("a deletion has at most %d requests", k-1)
			require.Greater(t, k-1, 3)
			break
		}
		if k > 3 {
			interruptDeletion(t, twoTransactions, k, zkproxy.CutAfterApplied)
		}
	}
}

// interruptDeletion has a deletion lose its connection for good at its k-th
// request. It returns false if there was none.
func interruptDeletion(t *testing.T, candidates, k int, action zkproxy.Action) (interrupted bool) {
	t.Helper()
	conn, deleter := connectDirectly(t), connect(t)
	node := newNode(t, conn)
	late := newCandidate(t, conn, node)
	leader, grant := lead(t, conn, node)
	all := []*candidate{leader}
	for range candidates - 1 {
		all = append(all, enlist(t, conn, node))
	}
	for _, c := range all[1:] {
		require.Equal(t, leaderelection.Follower, c.next(t).Role)
	}

	cut := deleter.link[0].On(zkproxy.Rule{Op: zkproxy.OpAny, K: k, Action: action})
	deleter.link.refuse() // from then on
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

	if !exists(t, conn, node) || exists(t, conn, path.Join(node, "DONE")) {
		late.start()
		late.ends(t, leaderelection.ErrElectionOver)
		for _, c := range all[1:] {
			require.NotEqual(t, leaderelection.Leader, c.Current().Role, "a new leader")
		}
	}
	require.NoError(t, leaderelection.DeleteElection(conn.Conn, node))
	for _, c := range all {
		c.ends(t, leaderelection.ErrElectionOver)
	}
	require.Error(t, grant.Err())
	require.False(t, exists(t, conn, node))
	return interrupted
}

// A newcomer gets the end of the election while it is being deleted.
func TestEndTellsNewcomers(t *testing.T) {
	t.Parallel()
	conn, elsewhere := connect(t), connect(t)
	node := newNode(t, conn)
	_, err := conn.Create(path.Join(node, "DONE"), []byte("done"), 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	c := newCandidate(t, elsewhere, node)
	c.start()
	c.ends(t, leaderelection.ErrElectionOver)
	_, err = leaderelection.Candidates(conn.Conn, node)
	require.ErrorIs(t, err, leaderelection.ErrElectionOver)
	_, _, err = leaderelection.CurrentLeader(conn.Conn, node)
	require.ErrorIs(t, err, leaderelection.ErrElectionOver)
	_, err = leaderelection.Observe(t.Context(), conn.Conn, node)
	require.ErrorIs(t, err, leaderelection.ErrElectionOver)
	require.Equal(t, []string{"DONE"}, children(t, conn, node))
	electiontest.Confirm(t, c.EndElection) // also after its candidacy
	require.False(t, exists(t, conn, node))
}

// EndElection by a candidate that takes no part.
func TestEndByBystander(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := newNode(t, conn)
	leader, grant := lead(t, conn, node)
	idle := newCandidate(t, conn, node)
	electiontest.Confirm(t, idle.EndElection)
	require.ErrorIs(t, (<-idle.Status()).Err, leaderelection.ErrElectionOver)
	idle.isClosed(t)
	require.ErrorIs(t, idle.ElectLeader(), leaderelection.ErrCandidacyOver)
	leader.ends(t, leaderelection.ErrElectionOver)
	require.Error(t, grant.Err())
	require.NoError(t, idle.EndElection())
	electiontest.Confirm(t, leader.EndElection)
}

// EndElection while ZooKeeper is out of reach ends the candidacy within two
// seconds and goes on in the background.
func TestEndWhileDisconnected(t *testing.T) {
	t.Parallel()
	conn, elsewhere := connect(t), connect(t)
	node := newNode(t, conn)
	leader, grant := lead(t, conn, node)
	follower := follow(t, elsewhere, node, leader)
	conn.link.cut()
	begin := time.Now()
	require.ErrorIs(t, leader.EndElection(), leaderelection.ErrUnconfirmed)
	require.Less(t, time.Since(begin), confirmed)
	require.Error(t, grant.Err())
	leader.ends(t, leaderelection.ErrElectionOver)
	require.NoError(t, follower.Current().Err)

	conn.link.restore()
	// The own znode may be gone before the election is marked as over: then the
	// follower leads for a moment.
	all := follower.rest(t)
	require.ErrorIs(t, all[len(all)-1].Err, leaderelection.ErrElectionOver)
	waitGone(t, elsewhere, node)
	electiontest.Confirm(t, leader.EndElection)
}

// An election node created anew at the same path is another election: an old
// candidate's EndElection leaves it alone.
func TestEndIsOfOneElection(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := newNode(t, conn)
	old, _ := lead(t, conn, node)
	electiontest.Confirm(t, old.EndElection)
	old.ends(t, leaderelection.ErrElectionOver)
	_, err := conn.Create(node, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	leader, grant := lead(t, conn, node)
	require.NoError(t, old.EndElection())
	leader.quiet(t, calm)
	require.NoError(t, grant.Err())
}
