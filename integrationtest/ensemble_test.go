package integrationtest

import (
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// TestEnsemble_TermsDoNotOverlapWithDefaultSettings checks that the leadership of a client whose server is cut off
// ends before the next leader starts, with the proportions of the default settings: a server that is cut off serves
// its clients for ten seconds, and sessions last four seconds.
func TestEnsemble_TermsDoNotOverlapWithDefaultSettings(t *testing.T) {
	t.Parallel()
	const tick, timeout = 2 * time.Second, 4 * time.Second
	ens := ensemble.StartServers(t, ensemble.Config{Servers: 3, TickTime: tick, InitLimit: 10, SyncLimit: 5})
	for _, role := range []string{"follower", "leader"} {
		t.Run("cut off the "+role, func(t *testing.T) { testServerCutOff(t, ens, tick, timeout, role == "leader") })
	}
}

// These settings have the proportions of the default settings, but times that are shorter and that a busy machine can
// still keep. A server that is cut off serves its clients for longer than a session lasts.
const (
	quickTick      = time.Second
	quickSyncLimit = 8
	quickTimeout   = 4 * time.Second
)

// TestEnsemble_KeepsOneLeaderDuringFaults checks, for each fault of a server or a connection, that two leaderships do
// not overlap, and that a fault that is shorter than the lease does not change the leader.
func TestEnsemble_KeepsOneLeaderDuringFaults(t *testing.T) {
	t.Parallel()
	ens := ensemble.StartServers(t, ensemble.Config{Servers: 3, TickTime: quickTick, SyncLimit: quickSyncLimit})
	for _, test := range []struct {
		name string
		run  func(*testing.T, *ensemble.Ensemble)
	}{
		{"cut off a follower", func(t *testing.T, ens *ensemble.Ensemble) {
			testServerCutOff(t, ens, quickTick, quickTimeout, false)
		}},
		{"cut off the leader", func(t *testing.T, ens *ensemble.Ensemble) { testServerCutOff(t, ens, quickTick, quickTimeout, true) }},
		{"pause the server", testServerPaused},
		{"pause the server briefly", testShortPause},
		{"kill the server", testServerKilled},
		{"kill the ensemble's leader", testEnsembleLeaderKilled},
		{"disconnect briefly", testShortDisconnection},
		{"expire the session", testSessionExpiry},
		{"detect an overlap", testHistoryFindsOverlap},
	} {
		t.Run(test.name, func(t *testing.T) {
			defer repairServers(t, ens) // repair the servers even if the test fails, because other tests use the same servers
			test.run(t, ens)
		})
	}
}

// chooseServer returns the server that leads the ensemble, or a follower if leader is false, and the other servers.
func chooseServer(t *testing.T, ens *ensemble.Ensemble, leader bool) (server int, others []int) {
	t.Helper()
	var at int
	testenv.Eventually(t, func() (found bool) {
		i, err := ens.Leader()
		at = i
		return err == nil
	}, "the ensemble has no leader")
	server = at
	if !leader {
		server = (at + 1) % ens.Servers()
	}
	for i := range ens.Servers() {
		if i != server {
			others = append(others, i)
		}
	}
	return server, others
}

// createVisibleNode creates an election node by one client, and waits until another client finds it: the server of
// the other client may still lag behind, because the previous test has stopped it.
func createVisibleNode(t *testing.T, by, other *client) string {
	t.Helper()
	node := createElectionNode(t, by)
	testenv.Eventually(t, func() bool {
		if _, err := other.Sync(node); err != nil {
			return false
		}
		found, _, err := other.Exists(node)
		return err == nil && found
	}, "the other client does not find the election node")
	return node
}

// addrsOf returns the addresses of the given servers of an ensemble.
func addrsOf(ens *ensemble.Ensemble, servers []int) (addrs []string) {
	for _, i := range servers {
		addrs = append(addrs, ens.Addr(i))
	}
	return addrs
}

// receivedStatus is a status, with the time at which the test has read it.
type receivedStatus struct {
	leaderelection.Status
	at time.Time
}

// receiveStatuses reads a candidate's statuses until the channel is closed.
func receiveStatuses(t *testing.T, c *candidate) <-chan receivedStatus {
	t.Helper()
	all := make(chan receivedStatus, 100)
	ended := make(chan struct{})
	t.Cleanup(func() { _ = c.Resign(); <-ended })
	go func() {
		defer close(ended)
		defer close(all)
		for s := range c.Status() {
			all <- receivedStatus{s, time.Now()}
		}
	}()
	return all
}

// waitSuccession waits until a follower becomes the leader. It returns the leadership, and the time at which its
// status was read.
func waitSuccession(t *testing.T, statuses <-chan receivedStatus) (*leaderelection.Leadership, time.Time) {
	t.Helper()
	s := testenv.Receive(t, statuses, "the succession")
	require.Equal(t, leaderelection.Leader, s.Role, "%v", s.Status)
	return s.Leadership, s.at
}

// hasFullLease reports whether the lease of a leadership has its full length. The first lease is shorter, and several
// checks extend it.
func hasFullLease(l *leaderelection.Leadership, timeout time.Duration) bool {
	return time.Until(l.Deadline()) > timeout*2/5
}

// waitFullLease waits until the lease of a leadership has its full length.
func waitFullLease(t *testing.T, l *leaderelection.Leadership, timeout time.Duration) {
	t.Helper()
	testenv.Eventually(t, func() bool { return l.Err() != nil || hasFullLease(l, timeout) }, "the lease was not renewed")
	require.NoError(t, l.Err(), "the leadership has ended before the fault")
}

// waitStableLeader waits until the lease of c has its full length, and returns the leadership. It discards earlier
// statuses, because a busy machine may have suspended the leader.
func waitStableLeader(t *testing.T, c *candidate, statuses <-chan receivedStatus, timeout time.Duration) *leaderelection.Leadership {
	t.Helper()
	var l *leaderelection.Leadership
	testenv.Eventually(t, func() bool {
		now := c.Current()
		l = now.Leadership
		return now.Role == leaderelection.Leader && l.Err() == nil && hasFullLease(l, timeout)
	}, "the lease was not renewed")
	for len(statuses) > 0 {
		<-statuses
	}
	return l
}

// waitSuspended waits until a candidate reports, after the time of a fault, that it is suspended.
func waitSuspended(t *testing.T, statuses <-chan receivedStatus, fault time.Time) receivedStatus {
	t.Helper()
	s := testenv.Receive(t, statuses, "the suspension")
	for s.at.Before(fault) {
		s = testenv.Receive(t, statuses, "the suspension")
	}
	require.Equal(t, leaderelection.Suspended, s.Role, "%v", s.Status)
	return s
}

// testServerCutOff cuts off the server of the leader's client from the other servers. That server still answers pings
// and reads, while the others expire the session and elect another candidate.
// Scenario 13 of docs/traps.md.
func testServerCutOff(t *testing.T, ens *ensemble.Ensemble, tick, timeout time.Duration, leader bool) {
	member, others := chooseServer(t, ens, leader)
	conn := connectTo(t, timeout, ens.Addr(member))
	idle := connectTo(t, timeout, ens.Addr(member)) // this client sends only pings and reads
	other := connectTo(t, sessionTimeout, addrsOf(ens, others)...)
	node := createVisibleNode(t, other, conn)

	h := newHistory()
	c, _ := startLeader(t, conn, node)
	statuses := receiveStatuses(t, c)
	next := startFollower(t, other, node, c)
	successions := receiveStatuses(t, next)
	l := waitStableLeader(t, c, statuses, timeout)
	term := h.addTerm("old", c.ID(), l)

	cut := time.Now()
	require.NoError(t, ens.CutOff(member))
	since := func(at time.Time) time.Duration { return at.Sub(cut).Round(time.Millisecond) }

	testenv.Receive(t, l.Done(), "Done of the old leadership")
	done := time.Now()
	h.endTerm(term, l.Err())
	require.ErrorIs(t, l.Err(), leaderelection.ErrLeaseExpired)
	state := conn.State()
	suspended := waitSuspended(t, statuses, cut)

	l2, elected := waitSuccession(t, successions)
	h.addTerm("new", next.ID(), l2)
	require.True(t, suspended.at.Before(elected), "the old leader was notified %v after the new leader", suspended.at.Sub(elected))
	require.True(t, done.Before(elected), "the old leadership ended %v after the new one had started", done.Sub(elected))
	require.Greater(t, l2.Token(), l.Token())
	require.NoError(t, h.checkTerms())
	t.Logf("tick %v, session %v: Done %v and Suspended %v after the cut, in state %v of the client library; the next candidate became leader after %v",
		tick, timeout, since(done), since(suspended.at), state, since(elected))
	if !leader {
		// The scenario requires that the server that is cut off still answers, and still shows the old leader's
		// znode.
		require.Equal(t, zk.StateHasSession, idle.State())
		require.True(t, znodeExists(t, idle, c.ID()), "the server that is cut off no longer serves the znode, so that the test has no effect")
	}

	require.NoError(t, ens.Heal(member))
	final := testenv.Receive(t, statuses, "the final status")
	require.ErrorIs(t, final.Err, leaderelection.ErrSessionExpired)
	_, open := <-statuses
	require.False(t, open)
	waitStillLeader(t, next, l2)
	t.Logf("the old candidate ended after %v", since(final.at))
	ensemble.WaitReady(t, ens)
}

// testServerPaused pauses the server of the leader's client for longer than a session lasts. The client
// knows no other server.
func testServerPaused(t *testing.T, ens *ensemble.Ensemble) {
	paused, others := chooseServer(t, ens, false)
	conn := connectTo(t, quickTimeout, ens.Addr(paused))
	other := connectTo(t, sessionTimeout, addrsOf(ens, others)...)
	node := createVisibleNode(t, other, conn)
	h := newHistory()
	c, _ := startLeader(t, conn, node)
	statuses := receiveStatuses(t, c)
	next := startFollower(t, other, node, c)
	successions := receiveStatuses(t, next)
	h.addTerm("old", c.ID(), waitStableLeader(t, c, statuses, quickTimeout))

	at := time.Now()
	require.NoError(t, ens.Pause(paused))
	suspended := waitSuspended(t, statuses, at)
	l2, elected := waitSuccession(t, successions)
	h.addTerm("new", next.ID(), l2)
	require.NoError(t, h.checkTerms())
	require.True(t, suspended.at.Before(elected), "the old leader was notified %v after the new leader", suspended.at.Sub(elected))
	t.Logf("Suspended %v after the pause; the next candidate became leader after %v", suspended.at.Sub(at).Round(time.Millisecond), elected.Sub(at).Round(time.Millisecond))

	require.NoError(t, ens.Resume(paused))
	require.ErrorIs(t, testenv.Receive(t, statuses, "the final status").Err, leaderelection.ErrSessionExpired)
	waitStillLeader(t, next, l2)
}

// testShortPause pauses the server of the leader's client for less than the lease.
func testShortPause(t *testing.T, ens *ensemble.Ensemble) {
	const timeout = 8 * time.Second
	paused, others := chooseServer(t, ens, false)
	conn := connectTo(t, timeout, ens.Addr(paused))
	other := connectTo(t, timeout, addrsOf(ens, others)...)
	node := createVisibleNode(t, other, conn)
	c, l := startLeader(t, conn, node)
	next := startFollower(t, other, node, c)
	waitFullLease(t, l, timeout)
	require.NoError(t, ens.Pause(paused))
	<-time.After(timeout / 8)
	require.NoError(t, ens.Resume(paused))
	requireStillLeader(t, c, l)
	next.requireNoStatus(t, 0)
}

// requireStillLeader waits for a check of the lease after the call, and requires that c is still the leader with the
// leadership l, and has reported no status.
func requireStillLeader(t *testing.T, c *candidate, l *leaderelection.Leadership) {
	t.Helper()
	before := l.Deadline()
	testenv.Eventually(t, func() bool { return l.Err() != nil || l.Deadline().After(before) }, "the lease was not renewed")
	require.NoError(t, l.Err())
	_, err := c.multi()
	require.NoError(t, err, "the ensemble does not confirm the leadership")
	c.requireNoStatus(t, 0)
}

// testServerKilled kills the server of the leader's client. The client connects to another server before the lease
// expires.
func testServerKilled(t *testing.T, ens *ensemble.Ensemble) {
	const timeout = 8 * time.Second
	killed, others := chooseServer(t, ens, false)
	conn := connectTo(t, timeout, ens.Addrs()...)
	other := connectTo(t, timeout, addrsOf(ens, others)...)
	node := createVisibleNode(t, other, conn)
	c, l := startLeader(t, conn, node)
	next := startFollower(t, other, node, c)
	last := startFollower(t, conn, node, next)
	for i := 0; conn.ServerIndex() < 0 || conn.Network[conn.ServerIndex()] != conn.Network[killed]; i++ {
		require.Less(t, i, 20, "the client does not connect to server %d", killed)
		conn.Network.Drop()
		conn.WaitConnected(t)
	}
	waitFullLease(t, l, timeout)
	session := conn.SessionID()
	require.NoError(t, ens.Kill(killed))
	testenv.Eventually(t, func() bool { return conn.State() == zk.StateHasSession && conn.ServerIndex() != killed }, "the client does not connect to another server")
	requireStillLeader(t, c, l)
	require.Equal(t, session, conn.SessionID())
	next.requireNoStatus(t, 0)
	last.requireNoStatus(t, 0)

	// After the fault, a resignation of the leader makes the follower the leader as usual.
	c.resign(t)
	next.requireLeader(t)
	next.resign(t)
	last.requireLeader(t)
}

// testEnsembleLeaderKilled kills the server that leads the ensemble. All clients are disconnected until the other
// servers have elected a new one.
func testEnsembleLeaderKilled(t *testing.T, ens *ensemble.Ensemble) {
	const timeout = 8 * time.Second
	killed, _ := chooseServer(t, ens, true)
	var conns []*client
	for range 3 {
		conns = append(conns, connectTo(t, timeout, ens.Addrs()...))
	}
	node := createElectionNode(t, conns[0])
	for _, conn := range conns {
		_, err := conn.Sync(node)
		require.NoError(t, err)
	}
	h := newHistory()
	c, l := startLeader(t, conns[0], node)
	h.addTerm("leader", c.ID(), l)
	next := startFollower(t, conns[1], node, c)
	last := startFollower(t, conns[2], node, next)
	waitFullLease(t, l, timeout)

	require.NoError(t, ens.Kill(killed))
	at := time.Now()
	testenv.Eventually(t, func() bool {
		i, err := ens.Leader()
		return err == nil && i != killed
	}, "no other server leads")
	// The lease may end while the servers elect a leader; the session must not end.
	testenv.Eventually(t, func() bool {
		if c.Current().Role != leaderelection.Leader {
			return false
		}
		_, err := c.multi()
		return err == nil
	}, "the candidate does not lead again")
	t.Logf("the candidate led again after %v", time.Since(at).Round(time.Millisecond))
	require.Equal(t, l.Token(), c.Current().Leadership.Token())
	next.requireNoStatus(t, 0)
	last.requireNoStatus(t, 0)
	for drained := false; !drained; {
		select {
		case s := <-c.Status():
			require.True(t, s.Role == leaderelection.Suspended || s.Role == leaderelection.Leader, "%v", s)
			if s.Role == leaderelection.Leader {
				require.Equal(t, l.Token(), s.Leadership.Token())
				h.addTerm("leader", c.ID(), s.Leadership)
			}
		default:
			drained = true
		}
	}
	electiontest.Confirm(t, c.Resign)
	l2 := next.requireLeader(t)
	h.addTerm("next", next.ID(), l2)
	next.resign(t)
	h.addTerm("last", last.ID(), last.requireLeader(t))
	require.NoError(t, h.checkTerms())
}

// testShortDisconnection interrupts the leader's connections for less than its lease.
func testShortDisconnection(t *testing.T, ens *ensemble.Ensemble) {
	const timeout = 8 * time.Second
	conn, other := connectTo(t, timeout, ens.Addrs()...), connectTo(t, timeout, ens.Addrs()...)
	node := createElectionNode(t, conn)
	_, err := other.Sync(node)
	require.NoError(t, err)
	c, l := startLeader(t, conn, node)
	next := startFollower(t, other, node, c)
	last := startFollower(t, conn, node, next)
	session := conn.SessionID()
	for _, fault := range []struct{ inject, repair func(zkproxy.Network) }{
		{zkproxy.Network.Drop, zkproxy.Network.Restore}, {zkproxy.Network.Cut, zkproxy.Network.Restore}, {zkproxy.Network.Freeze, zkproxy.Network.Thaw},
	} {
		waitFullLease(t, l, timeout)
		fault.inject(conn.Network)
		<-time.After(timeout / 16)
		fault.repair(conn.Network)
		requireStillLeader(t, c, l)
		next.requireNoStatus(t, 0)
		last.requireNoStatus(t, 0)
	}
	require.Equal(t, session, conn.SessionID())
	names := listChildren(t, other, node)
	slices.SortFunc(names, func(a, b string) int {
		return int(readStat(t, other, node+"/"+a).Czxid - readStat(t, other, node+"/"+b).Czxid)
	})
	require.Equal(t, []string{znodeName(c), znodeName(next), znodeName(last)}, names)
}

// testSessionExpiry freezes the connections of a leader's client until the ensemble expires the session.
func testSessionExpiry(t *testing.T, ens *ensemble.Ensemble) {
	const timeout = shortTimeout
	conn, other := connectTo(t, timeout, ens.Addrs()...), connectTo(t, timeout, ens.Addrs()...)
	node := createElectionNode(t, conn)
	_, err := other.Sync(node)
	require.NoError(t, err)
	h := newHistory()
	c, l := startLeader(t, conn, node)
	h.addTerm("old", c.ID(), l)
	follower := startFollower(t, conn, node, c)
	next := startFollower(t, other, node, follower)
	conn.Network.Freeze()
	h.addTerm("new", next.ID(), next.requireLeader(t))
	require.NoError(t, h.checkTerms())
	require.Equal(t, leaderelection.Suspended, c.Current().Role)
	conn.Network.Restore()

	c.requireEnded(t, leaderelection.ErrSessionExpired) // the final status is delivered once, and then the channel is closed
	follower.requireEnded(t, leaderelection.ErrSessionExpired)
	for range 2 {
		require.ErrorIs(t, c.ElectLeader(), leaderelection.ErrAlreadyStarted)
		require.NoError(t, c.Resign(), "a znode is left")
		_, open := <-c.Status()
		require.False(t, open)
	}
	require.Equal(t, []string{znodeName(next)}, listChildren(t, other, node))
}

// testHistoryFindsOverlap checks that history detects two leaders at the same time. To cause them, the session
// timeout that the candidate assumes is far longer than the granted timeout, so that the candidate does not notice
// the expiry.
func testHistoryFindsOverlap(t *testing.T, ens *ensemble.Ensemble) {
	member, others := chooseServer(t, ens, false)
	conn := connectTo(t, quickTimeout, ens.Addr(member))
	other := connectTo(t, quickTimeout, addrsOf(ens, others)...)
	node := createElectionNode(t, conn)
	_, err := other.Sync(node)
	require.NoError(t, err)
	h := newHistory()
	connection.RecordOf(conn.Conn).Push(connection.Event{Timeout: time.Minute}) // pretend that the server has granted a minute instead of 4 s
	c, l := startLeader(t, conn, node, leaderelection.WithSessionTimeout(time.Minute))
	term := h.addTerm("old", c.ID(), l)
	next := startFollower(t, other, node, c)

	require.NoError(t, ens.CutOff(member))
	h.addTerm("next", next.ID(), next.requireLeader(t))
	assert.ErrorContains(t, h.checkTerms(), "has not ended yet")
	require.NoError(t, ens.Heal(member))
	testenv.Receive(t, l.Done(), "the end of the leadership")
	h.endTerm(term, l.Err())
	err = h.checkTerms()
	require.ErrorContains(t, err, "before the end of old")
	t.Logf("the history reports: %v", err)
}

// waitStillLeader waits until c leads with the token of l. A busy server that answers late may have suspended the
// leader in the meantime.
func waitStillLeader(t *testing.T, c *candidate, l *leaderelection.Leadership) {
	t.Helper()
	testenv.Eventually(t, func() bool {
		now := c.Current()
		return now.Role == leaderelection.Leader && now.Leadership.Token() == l.Token()
	}, "the successor does not lead")
}
