package integrationtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
)

// These are the scenarios and tests of the first design that the parity cases
// do not have.

// memberNot gives a server that does not lead the ensemble.
func memberNot(t *testing.T, e *ensemble.Ensemble, leader int) int {
	t.Helper()
	return (leader + 1) % e.Servers()
}

// ensembleLeader waits until a server leads the ensemble, another one than old.
func ensembleLeader(t *testing.T, e *ensemble.Ensemble, old int) (leader int) {
	t.Helper()
	eventually(t, func() bool {
		var err error
		leader, err = e.Leader()
		return err == nil && leader != old
	}, "no server leads")
	return leader
}

// Scenario: a client recovers to another server of the ensemble. Leaders
// maintain leadership, followers still follow, the next election works.
func TestRecoveryToAnotherServer(t *testing.T) {
	t.Parallel()
	servers := trio.use(t)
	member := memberNot(t, servers, ensembleLeader(t, servers, -1))
	conn := connectTo(t, shortTimeout, from(servers, member)...)
	elsewhere := connectTo(t, sessionTimeout, from(servers, (member+1)%3)...)
	require.Zero(t, conn.server())
	node := newNode(t, conn)
	leader, grant := lead(t, conn, node)
	f1 := follow(t, conn, node, leader)
	f2 := follow(t, elsewhere, node, f1)
	f3 := follow(t, conn, node, f2)

	require.NoError(t, servers.Kill(member))
	eventually(t, func() bool { return conn.server() > 0 && exists(t, conn, leader.ID()) }, "the client has moved")
	for _, c := range []*candidate{leader, f1, f2, f3} {
		c.quiet(t, calm)
	}
	require.NoError(t, grant.Err())
	require.Equal(t, leaderelection.Leader, leader.Current().Role)

	f2.resign(t)
	f3.follows(t, f1)
	leader.resign(t)
	require.Greater(t, f1.leads(t).Token(), grant.Token())
	f1.resign(t)
	f3.leads(t)
}

// Scenario: the ensemble loses its own leader and elects another. A leader may
// be suspended meanwhile; the line stays.
func TestLossOfTheEnsembleLeader(t *testing.T) {
	t.Parallel()
	servers := trio.use(t)
	lost := ensembleLeader(t, servers, -1)
	conn := connectTo(t, sessionTimeout, from(servers, lost)...)
	elsewhere := connectTo(t, sessionTimeout, from(servers, (lost+1)%3)...)
	node := newNode(t, conn)
	leader, grant := lead(t, conn, node)
	follower := follow(t, elsewhere, node, leader)

	require.NoError(t, servers.Kill(lost))
	ensembleLeader(t, servers, lost)
	var again leaderelection.Status
	eventually(t, func() bool {
		// While the others settle a lease that is back may lapse once more.
		_, err := leader.Multi()
		again = leader.Current()
		return err == nil && again.Role == leaderelection.Leader
	}, "it does not lead again")
	require.Equal(t, grant.Token(), again.Leadership.Token())
	follower.quiet(t, 0)
	electiontest.Confirm(t, leader.Resign)
	follower.leads(t)
}

// Scenario: the server of a leader is cut off from the ensemble while the
// client still reaches it.
func TestLeaderOnTheMinoritySide(t *testing.T) {
	t.Parallel()
	servers := trio.use(t)
	member := memberNot(t, servers, ensembleLeader(t, servers, -1))
	conn := connectTo(t, shortTimeout, servers.Addr(member))
	elsewhere := connectTo(t, sessionTimeout, servers.Addr((member+1)%3), servers.Addr((member+2)%3))
	node := newNode(t, conn)
	leader, grant := lead(t, conn, node)
	follower := follow(t, elsewhere, node, leader)

	require.NoError(t, servers.CutOff(member))
	require.Equal(t, leaderelection.Suspended, leader.next(t).Role)
	ends(t, grant, leaderelection.ErrLeaseExpired)
	follower.quiet(t, 0)
	next := follower.leads(t)
	require.Greater(t, next.Token(), grant.Token())
	leader.quiet(t, calm)
	require.NoError(t, servers.Heal(member))
	leader.ends(t, leaderelection.ErrSessionExpired)
	require.NoError(t, next.Err())
}

// Scenario: ZooKeeper dies and is back within the session. A candidate that
// has resigned meanwhile leaves no zombie.
func TestZombieAfterRestart(t *testing.T) {
	t.Parallel()
	server := mortal.use(t)
	conn := connectTo(t, sessionTimeout, server.Addrs()...)
	elsewhere := connectTo(t, sessionTimeout, server.Addrs()...)
	node := newNode(t, conn)
	leader, _ := lead(t, conn, node)
	f1 := follow(t, conn, node, leader)
	f2 := follow(t, elsewhere, node, f1)
	require.NoError(t, server.Kill(0))
	for _, c := range []*candidate{f1, leader} {
		require.ErrorIs(t, c.Resign(), leaderelection.ErrUnconfirmed)
	}
	startAgain(t, server, conn, elsewhere)
	for s := f2.next(t); s.Role != leaderelection.Leader; s = f2.next(t) {
		require.Equal(t, leader.ID(), s.NowFollowing)
	}
	require.Equal(t, []string{base(f2)}, children(t, elsewhere, node))
	for _, c := range []*candidate{f1, leader} {
		electiontest.Confirm(t, c.Resign)
	}
}

// Scenario: ZooKeeper is back in time. Everything is kept.
func TestReconnectInTime(t *testing.T) {
	t.Parallel()
	conn := connectWays(t, sessionTimeout)
	conn.link.beforeReconnect()
	node := newNode(t, conn)
	leader, grant := lead(t, conn, node)
	f1 := follow(t, conn, node, leader)
	f2 := follow(t, conn, node, f1)
	for range 3 {
		fullLease(t, grant, sessionTimeout)
		session := conn.SessionID()
		conn.link.drop()
		goesOn(t, conn)
		require.Equal(t, session, conn.SessionID())
		_, err := leader.Multi()
		require.NoError(t, err)
	}
	for _, c := range []*candidate{leader, f1, f2} {
		c.quiet(t, calm)
	}
	require.NoError(t, grant.Err())
	leader.resign(t)
	f1.leads(t)
	f2.quiet(t, calm)
}

// Scenario: of candidates 1 to 4 the first three fail at once, so that the
// fourth is told of one only.
func TestSeveralFailAtOnce(t *testing.T) {
	t.Parallel()
	conn, elsewhere := connect(t), connect(t)
	node := newNode(t, conn)
	leader, _ := lead(t, conn, node)
	f1 := follow(t, conn, node, leader)
	f2 := follow(t, conn, node, f1)
	last := follow(t, elsewhere, node, f2)
	expire(t, conn)
	s := last.next(t)
	for s.Role != leaderelection.Leader { // how many it sees go one by one is open
		require.NoError(t, s.Err)
		require.Contains(t, []string{leader.ID(), f1.ID()}, s.NowFollowing)
		s = last.next(t)
	}
}

// Scenario: a request for leadership writes an ephemeral znode and watches the
// predecessor and nothing else. Nobody but the direct follower learns of a
// departure.
func TestOnlyPredecessorIsWatched(t *testing.T) {
	t.Parallel()
	conns := []*client{connect(t), connect(t), connect(t), connect(t)}
	node := newNode(t, conns[0])
	leader, _ := lead(t, conns[0], node)
	line := []*candidate{leader}
	for _, conn := range conns[1:] {
		line = append(line, follow(t, conn, node, line[len(line)-1]))
	}
	for i, c := range line[:3] {
		require.Equal(t, []int64{conns[i+1].SessionID()}, watchers(t, c.ID()))
	}
	require.Empty(t, watchers(t, line[3].ID()))
	require.Empty(t, watchers(t, node))
	line[1].resign(t)
	line[2].follows(t, leader)
	leader.quiet(t, calm)
	line[3].quiet(t, 0)
}

// Scenario: an instance that has resigned is unusable.
func TestUnusableAfterResign(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := newNode(t, conn)
	c, _ := lead(t, conn, node)
	c.resign(t)
	require.ErrorIs(t, c.ElectLeader(), leaderelection.ErrCandidacyOver)
	_, err := c.Multi()
	require.ErrorIs(t, err, leaderelection.ErrNotLeader)
	_, open := <-c.Status()
	require.False(t, open)
	require.Equal(t, leaderelection.Follower, c.Current().Role)
	require.Nil(t, c.Current().Leadership)
	electiontest.Confirm(t, c.Resign)
	require.Empty(t, children(t, conn, node))

	// One that never took part can resign too, and then cannot.
	idle := newCandidate(t, conn, node)
	electiontest.Confirm(t, idle.Resign)
	idle.isClosed(t)
	require.ErrorIs(t, idle.ElectLeader(), leaderelection.ErrCandidacyOver)
	require.Empty(t, children(t, conn, node))
}

// Scenario: a client asks for the state, of its candidate and of the election.
func TestQueryState(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := newNode(t, conn)
	leader, grant := lead(t, conn, node, leaderelection.WithClientName("one"))
	follower := follow(t, conn, node, leader, leaderelection.WithClientName("two"))
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
