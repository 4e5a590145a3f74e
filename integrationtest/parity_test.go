package integrationtest

import (
	"path"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
)

// These are the cases that Comcast's go-leaderelection tests: first its
// integration tests, then its unit tests, then the list of intended ones.

// Case: Happy Path.
func TestHappyPath(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := newNode(t, conn)
	_, stat, err := conn.Exists(node)
	require.NoError(t, err)
	require.Zero(t, stat.EphemeralOwner, "the election node is ephemeral")

	c, grant := lead(t, conn, node)
	require.Regexp(t, `^`+regexp.QuoteMeta(node)+`/_c_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-latch-[0-9]{10}$`, c.ID())
	_, stat, err = conn.Exists(c.ID())
	require.NoError(t, err)
	require.Equal(t, conn.SessionID(), stat.EphemeralOwner)
	require.Equal(t, stat.Czxid, grant.Token())
	c.quiet(t, time.Second)
	require.NoError(t, grant.Err())

	c.resign(t)
	ends(t, grant, leaderelection.ErrResigned)
	require.NoError(t, conn.Delete(node, -1), "something was left in the election node")
}

// Case: Client Name.
func TestClientName(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := newNode(t, conn)
	leader, _ := lead(t, conn, node, leaderelection.WithClientName("host.example"))
	follower := follow(t, conn, node, leader, leaderelection.WithClientName("foobar"))
	for c, want := range map[*candidate]string{leader: "host.example", follower: "foobar"} {
		data, _, err := conn.Get(c.ID())
		require.NoError(t, err)
		assert.Equal(t, want, string(data))
	}
}

// Case: Leader Crash.
func TestLeaderCrash(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := newNode(t, conn)
	leader := startProcess(t, node, "stay")
	require.Equal(t, "leader", leader.line(t))
	follower := startProcess(t, node, "resign")
	require.Equal(t, "follower", follower.line(t))

	require.NoError(t, leader.cmd.Process.Kill())
	require.Equal(t, "leader", follower.line(t))
	require.NoError(t, follower.wait(t), "exit status of the follower")
	require.Empty(t, children(t, conn, node))
}

// Case: ZK Absence 1, NewElection while ZooKeeper is down.
func TestAbsenceAtStart(t *testing.T) {
	t.Parallel()
	server := mortal.use(t)
	require.NoError(t, server.Kill(0))
	conn := dial(t, shortTimeout, server.Addrs()...)
	e, err := leaderelection.NewElection(conn.Conn, "/election", leaderelection.WithSessionTimeout(shortTimeout))
	require.ErrorIs(t, err, leaderelection.ErrUnreachable)
	require.Nil(t, e)
}

// Case: ZK Absence 2, ElectLeader while ZooKeeper is down.
func TestAbsenceAtElectLeader(t *testing.T) {
	t.Parallel()
	server := mortal.use(t)
	conn := connectTo(t, shortTimeout, server.Addrs()...)
	node := newNode(t, conn)
	c := newCandidate(t, conn, node)
	require.NoError(t, server.Kill(0))
	c.start()
	c.ends(t, leaderelection.ErrUnreachable)

	startAgain(t, server, conn)
	conn = connectTo(t, shortTimeout, server.Addrs()...)
	electiontest.Confirm(t, c.Resign)
	require.Empty(t, children(t, conn, node))
}

// Case: ZK Absence 3, ZooKeeper stops under a leader and a follower.
func TestAbsenceWhileElected(t *testing.T) {
	t.Parallel()
	server := mortal.use(t)
	conn := connectTo(t, sessionTimeout, server.Addrs()...)
	node := newNode(t, conn)
	leader, grant := lead(t, conn, node)
	follower := follow(t, conn, node, leader)

	fullLease(t, grant, sessionTimeout)
	require.NoError(t, server.Kill(0))
	leader.quiet(t, calm)
	follower.quiet(t, calm)
	require.NoError(t, grant.Err())
	for _, c := range []*candidate{leader, follower} {
		resigned := make(chan error, 1)
		go func() { resigned <- c.Resign() }()
		c.closesSilently(t)
		require.ErrorIs(t, <-resigned, leaderelection.ErrUnconfirmed)
		require.NoError(t, c.result(t))
	}
	ends(t, grant, leaderelection.ErrResigned)
}

// Case: Leader Resignation.
func TestLeaderResignation(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := newNode(t, conn)
	leader, first := lead(t, conn, node)
	follower := follow(t, conn, node, leader)

	electiontest.Confirm(t, leader.Resign)
	leader.closesSilently(t)
	second := follower.leads(t)
	require.Greater(t, second.Token(), first.Token())
	late := follow(t, conn, node, follower)
	late.resign(t)
	follower.resign(t)
	require.NoError(t, conn.Delete(node, -1))
}

// Case: Follower Resignation.
func TestFollowerResignation(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := newNode(t, conn)
	leader, _ := lead(t, conn, node)
	f1 := follow(t, conn, node, leader)
	f2 := follow(t, conn, node, f1)

	f1.resign(t)
	require.Equal(t, f1.ID(), f2.follows(t, leader).WasFollowing)
	leader.quiet(t, calm)

	leader.resign(t)
	s := f2.next(t)
	require.Equal(t, leaderelection.Leader, s.Role)
	require.Empty(t, s.NowFollowing)
	require.Equal(t, leader.ID(), s.WasFollowing)
	electiontest.Confirm(t, f2.Resign)
	f2.closesSilently(t)
}

// Case: Delete Missing Election.
func TestDeleteMissingElection(t *testing.T) {
	t.Parallel()
	require.NoError(t, leaderelection.DeleteElection(connect(t).Conn, newPath(t)))
}

// Case: Delete Election Race, 500 candidates and 500 that come meanwhile.
func TestDeleteElectionRace(t *testing.T) {
	deletionRace(t, 500, 500, func(conn *client, node string, _ []*candidate) {
		require.NoError(t, leaderelection.DeleteElection(conn.Conn, node))
	})
}

// Case: Election Node Deletion, by another program.
func TestElectionNodeDeletion(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := newNode(t, conn)
	leader, grant := lead(t, conn, node)
	follower := follow(t, conn, node, leader)

	names := children(t, conn, node)
	require.Len(t, names, 2)
	begin := time.Now()
	for _, name := range names { // as zkCli's deleteall, in no particular order
		require.NoError(t, conn.Delete(path.Join(node, name), -1))
	}
	require.NoError(t, conn.Delete(node, -1))
	<-grant.Done()
	for _, c := range []*candidate{leader, follower} {
		// A follower may lead for a moment.
		all := c.rest(t)
		require.NotEmpty(t, all)
		require.Error(t, all[len(all)-1].Err)
		require.Error(t, c.result(t))
	}
	require.Less(t, time.Since(begin), sessionTimeout, "and not by the end of the session")
}

// Case: TestNilZKConn.
func TestNilConn(t *testing.T) {
	t.Parallel()
	e, err := leaderelection.NewElection(nil, "/election")
	require.ErrorIs(t, err, leaderelection.ErrNilConn)
	require.Nil(t, e)
}

// Case: TestMissingElectionResource.
func TestMissingElectionNode(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := newPath(t)
	e, err := leaderelection.NewElection(conn.Conn, node)
	require.ErrorIs(t, err, leaderelection.ErrNoElection)
	require.Nil(t, e)
	require.False(t, exists(t, conn, node))
}

// Case: TestLeaderElectionAndRecovery, four on one connection lead in turn.
func TestElectionAndRecovery(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	electionAndRecovery(t, conn, newNode(t, conn))
}

func electionAndRecovery(t testing.TB, conn *client, node string) {
	t.Helper()
	leader, grant := lead(t, conn, node)
	line := []*candidate{leader}
	for range 3 {
		line = append(line, follow(t, conn, node, line[len(line)-1]))
	}
	for _, heir := range line[1:] {
		leader.resign(t)
		next := heir.leads(t)
		require.Greater(t, next.Token(), grant.Token())
		leader, grant = heir, next
	}
	leader.resign(t)
}

// Case: BenchmarkTestLeaderElectionAndRecovery.
func BenchmarkElectionAndRecovery(b *testing.B) {
	conn := connect(b)
	node := newNode(b, conn)
	for b.Loop() {
		electionAndRecovery(b, conn, node)
	}
}

// Case: Initialization, by a client that does not take part; several clients
// share the connection and have several elections.
func TestInitialization(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node, other := newNode(t, conn), newNode(t, conn)
	idle := newCandidate(t, conn, node)
	require.Empty(t, idle.ID())
	require.Equal(t, leaderelection.Status{}, idle.Current())
	require.Empty(t, children(t, conn, node), "NewElection has enlisted the candidate")

	lead(t, conn, node)
	lead(t, conn, other)
	require.Empty(t, idle.Status())
}

// Case: intended 1, only one of many becomes leader.
func TestOnlyOneLeads(t *testing.T) {
	t.Parallel()
	conns := []*client{connect(t), connect(t), connect(t)}
	node := newNode(t, conns[0])
	var all []*candidate
	for i := range 30 {
		all = append(all, enlist(t, conns[i%len(conns)], node))
	}
	leaders, followed := 0, map[string]bool{}
	for _, c := range all {
		s := c.next(t)
		if s.Role == leaderelection.Leader {
			leaders++
			continue
		}
		require.False(t, followed[s.NowFollowing], "two follow %s", s.NowFollowing)
		followed[s.NowFollowing] = true
	}
	require.Equal(t, 1, leaders)
	for _, c := range all {
		c.quiet(t, 10*time.Millisecond)
	}
}

// Case: intended 2, the leader resigns and one of the others leads.
func TestRemainingOneLeads(t *testing.T) {
	t.Parallel()
	conn, elsewhere := connect(t), connect(t)
	node := newNode(t, conn)
	leader, _ := lead(t, conn, node)
	f1 := follow(t, elsewhere, node, leader)
	f2 := follow(t, elsewhere, node, f1)
	leader.resign(t)
	f1.leads(t)
	f2.quiet(t, calm)
}

// Case: intended 3, the last one resigns and none is left.
func TestNobodyLeft(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := newNode(t, conn)
	leader, _ := lead(t, conn, node)
	follower := follow(t, conn, node, leader)
	follower.resign(t)
	leader.resign(t)
	_, found, err := leaderelection.CurrentLeader(conn.Conn, node)
	require.NoError(t, err)
	require.False(t, found)
	require.Empty(t, children(t, conn, node))
}

// Case: intended 4, the connection is lost: all are notified and exit.
func TestConnectionLost(t *testing.T) {
	t.Parallel()
	conn, elsewhere := connectShortly(t), connect(t)
	node := newNode(t, conn)
	leader, grant := lead(t, conn, node)
	f1 := follow(t, conn, node, leader)
	f2 := follow(t, conn, node, f1)

	conn.link.freeze()
	require.Equal(t, leaderelection.Suspended, leader.next(t).Role)
	ends(t, grant, leaderelection.ErrLeaseExpired)
	waitGone(t, elsewhere, leader.ID())
	conn.link.restore()
	for _, c := range []*candidate{leader, f1, f2} {
		c.ends(t, leaderelection.ErrSessionExpired)
	}
	require.Empty(t, children(t, elsewhere, node))
}

// Case: intended 4, with the client itself closing the connection.
func TestConnectionClosed(t *testing.T) {
	t.Parallel()
	conn, elsewhere := connect(t), connect(t)
	node := newNode(t, conn)
	leader, grant := lead(t, conn, node)
	follower := follow(t, conn, node, leader)
	heir := follow(t, elsewhere, node, follower)
	conn.Close()
	for _, c := range []*candidate{leader, follower} {
		all := c.rest(t)
		require.ErrorIs(t, all[len(all)-1].Err, leaderelection.ErrConnClosed)
	}
	require.Error(t, grant.Err())
	s := heir.next(t)
	for s.Role != leaderelection.Leader { // the first may be seen to go later
		require.Equal(t, leader.ID(), s.NowFollowing)
		s = heir.next(t)
	}
}

// Case: intended 5, the election is deleted and all exit.
func TestElectionDeletedAllExit(t *testing.T) {
	t.Parallel()
	conn, elsewhere := connect(t), connect(t)
	node := newNode(t, conn)
	leader, grant := lead(t, conn, node)
	all := []*candidate{leader}
	for range 4 {
		all = append(all, follow(t, elsewhere, node, all[len(all)-1]))
	}
	require.NoError(t, leaderelection.DeleteElection(conn.Conn, node))
	for _, c := range all {
		c.ends(t, leaderelection.ErrElectionOver)
	}
	require.Error(t, grant.Err())
	require.False(t, exists(t, conn, node))
}

// Case: intended 6, the last follower's znode is deleted.
func TestLastFollowerDeleted(t *testing.T) {
	t.Parallel()
	conn, elsewhere := connect(t), connect(t)
	node := newNode(t, conn)
	leader, grant := lead(t, conn, node)
	follower := follow(t, conn, node, leader)
	last := follow(t, conn, node, follower)
	require.NoError(t, elsewhere.Delete(last.ID(), -1))
	last.ends(t, leaderelection.ErrCandidateDeleted)
	electiontest.Confirm(t, last.Resign)
	leader.quiet(t, calm)
	follower.quiet(t, 0)
	require.NoError(t, grant.Err())
}

// Case: intended 7, the loss of a server of the ensemble leaves all as it was:
// see TestRecoveryToAnotherServer, TestLossOfTheEnsembleLeader.

// Case: intended 8, a follower in the middle goes.
func TestMiddleFollowerGoes(t *testing.T) {
	t.Parallel()
	conn, elsewhere := connect(t), connect(t)
	node := newNode(t, conn)
	leader, _ := lead(t, conn, node)
	f1 := follow(t, conn, node, leader)
	f2 := follow(t, conn, node, f1)
	f3 := follow(t, elsewhere, node, f2)

	require.NoError(t, elsewhere.Delete(f2.ID(), -1))
	f2.ends(t, leaderelection.ErrCandidateDeleted)
	require.Equal(t, f2.ID(), f3.follows(t, f1).WasFollowing)
	f1.quiet(t, calm)
	leader.quiet(t, 0)
}
