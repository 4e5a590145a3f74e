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
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
	"github.com/go-leaderelection/leaderelection/internal/zk/handshake"
)

// In these tests servers of an ensemble fail while candidates stand. A leader
// must know that it leads no more before another one does.

// TestQuorumDefaults has the proportions of default settings, where a server
// that is cut off serves its clients for ten seconds and sessions last four.
func TestQuorumDefaults(t *testing.T) {
	t.Parallel()
	const tick, timeout = 2 * time.Second, 4 * time.Second
	ens := startEnsemble(t, ensemble.Config{Servers: 3, TickTime: tick, InitLimit: 10, SyncLimit: 5})
	for _, who := range []string{"follower", "leader"} {
		t.Run("cut off the "+who, func(t *testing.T) { cutOffClientsServer(t, ens, tick, timeout, who == "leader") })
	}
}

// The same proportions, in a time that a busy machine keeps, and with a server that serves cut
// off for longer than a session lives.
const (
	quickTick      = time.Second
	quickSyncLimit = 8
	quickTimeout   = 4 * time.Second
)

func TestQuorum(t *testing.T) {
	t.Parallel()
	ens := startEnsemble(t, ensemble.Config{Servers: 3, TickTime: quickTick, SyncLimit: quickSyncLimit})
	for _, test := range []struct {
		name string
		run  func(*testing.T, *ensemble.Ensemble)
	}{
		{"cut off a follower", func(t *testing.T, ens *ensemble.Ensemble) {
			cutOffClientsServer(t, ens, quickTick, quickTimeout, false)
		}},
		{"cut off the leader", func(t *testing.T, ens *ensemble.Ensemble) { cutOffClientsServer(t, ens, quickTick, quickTimeout, true) }},
		{"pause the server", pauseClientsServer},
		{"pause the server shortly", pauseShortly},
		{"kill the server", killClientsServer},
		{"kill the ensemble's leader", killEnsembleLeader},
		{"short loss", shortLoss},
		{"session expires", sessionExpires},
		{"the checker finds an overlap", checkerFindsOverlap},
	} {
		t.Run(test.name, func(t *testing.T) {
			defer repair(t, ens) // also if the test fails: others use the same servers
			test.run(t, ens)
		})
	}
}

// serverOf picks the ensemble's leader, or a follower, and says which the
// others are.
func serverOf(t *testing.T, ens *ensemble.Ensemble, leader bool) (server int, others []int) {
	t.Helper()
	var at int
	eventually(t, func() (found bool) {
		i, err := ens.Leader()
		at = i
		return err == nil
	}, "the ensemble has a leader")
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

// commonNode creates an election node by one client, and waits until another one finds it whose
// server may have been away in the test before, and lose its clients once more.
func commonNode(t *testing.T, by, other *client) string {
	t.Helper()
	node := newNode(t, by)
	eventually(t, func() bool {
		if _, err := other.Sync(node); err != nil {
			return false
		}
		found, _, err := other.Exists(node)
		return err == nil && found
	}, "the other client finds the election node")
	return node
}

// addrsOf gives the addresses of some servers.
func addrsOf(ens *ensemble.Ensemble, servers []int) (addrs []string) {
	for _, i := range servers {
		addrs = append(addrs, ens.Addr(i))
	}
	return addrs
}

// told is a status and when its reader got it.
type told struct {
	leaderelection.Status
	at time.Time
}

// listen reads a candidate's statuses until the channel is closed.
func listen(t *testing.T, c *candidate) <-chan told {
	t.Helper()
	all := make(chan told, 100)
	ended := make(chan struct{})
	t.Cleanup(func() { _ = c.Resign(); <-ended })
	go func() {
		defer close(ended)
		defer close(all)
		for s := range c.Status() {
			all <- told{s, time.Now()}
		}
	}()
	return all
}

// succession waits for a follower to lead, and says when it was told.
func succession(t *testing.T, statuses <-chan told) (*leaderelection.Leadership, time.Time) {
	t.Helper()
	s := await(t, statuses, "succession")
	require.Equal(t, leaderelection.Leader, s.Role, "%v", s.Status)
	return s.Leadership, s.at
}

// longest reports whether a leadership has the longest lease, as one has that was proven for a
// while. The first lease is shorter.
func longest(l *leaderelection.Leadership, timeout time.Duration) bool {
	return time.Until(l.Deadline()) > timeout*2/5
}

// fullLease waits until a leader has proven itself for long enough to have the
// longest lease.
func fullLease(t *testing.T, l *leaderelection.Leadership, timeout time.Duration) {
	t.Helper()
	eventually(t, func() bool { return l.Err() != nil || longest(l, timeout) }, "no proof arrives")
	require.NoError(t, l.Err(), "it leads no more, before anything has happened to its server")
}

// settled waits until c has the longest lease, and discards what it has reported until then: a
// busy machine may have suspended it.
func settled(t *testing.T, c *candidate, statuses <-chan told, timeout time.Duration) *leaderelection.Leadership {
	t.Helper()
	var l *leaderelection.Leadership
	eventually(t, func() bool {
		now := c.Current()
		l = now.Leadership
		return now.Role == leaderelection.Leader && l.Err() == nil && longest(l, timeout)
	}, "no proof arrives")
	for len(statuses) > 0 {
		<-statuses
	}
	return l
}

// suspension waits for the report that a candidate was suspended after a fault.
func suspension(t *testing.T, statuses <-chan told, fault time.Time) told {
	t.Helper()
	s := await(t, statuses, "suspended")
	for s.at.Before(fault) {
		s = await(t, statuses, "suspended")
	}
	require.Equal(t, leaderelection.Suspended, s.Role, "%v", s.Status)
	return s
}

// cutOffClientsServer is trap 13: the server of the leader's client is cut off
// from its quorum and goes on answering pings and reads, while the others
// expire the session and elect another candidate.
func cutOffClientsServer(t *testing.T, ens *ensemble.Ensemble, tick, timeout time.Duration, leader bool) {
	lonely, others := serverOf(t, ens, leader)
	conn := connectTo(t, timeout, ens.Addr(lonely))
	idle := connectTo(t, timeout, ens.Addr(lonely)) // sends nothing but pings and reads
	elsewhere := connectTo(t, sessionTimeout, addrsOf(ens, others)...)
	node := commonNode(t, elsewhere, conn)

	h := newHistory()
	c, _ := lead(t, conn, node)
	statuses := listen(t, c)
	next := follow(t, elsewhere, node, c)
	successions := listen(t, next)
	l := settled(t, c, statuses, timeout)
	term := h.granted("old", c.ID(), l)

	cut := time.Now()
	require.NoError(t, ens.CutOff(lonely))
	since := func(at time.Time) time.Duration { return at.Sub(cut).Round(time.Millisecond) }

	await(t, l.Done(), "the end of the old leadership")
	done := time.Now()
	h.ended(term, l.Err())
	require.ErrorIs(t, l.Err(), leaderelection.ErrLeaseExpired)
	state := conn.State()
	suspended := suspension(t, statuses, cut)

	l2, led := succession(t, successions)
	h.granted("new", next.ID(), l2)
	require.True(t, suspended.at.Before(led), "the old leader was told %v after the new one", suspended.at.Sub(led))
	require.True(t, done.Before(led), "the old leadership ended %v after the new one began", done.Sub(led))
	require.Greater(t, l2.Token(), l.Token())
	require.NoError(t, h.check())
	t.Logf("tick %v, session %v: Done %v and Suspended %v after the cut, when the client library said %v; the next leads after %v",
		tick, timeout, since(done), since(suspended.at), state, since(led))
	if !leader {
		// What makes the trap: the server still answers, and still shows the
		// old leader's znode.
		require.Equal(t, zk.StateHasSession, idle.State())
		require.True(t, exists(t, idle, c.ID()), "the server that is cut off has noticed: the test shows nothing")
	}

	require.NoError(t, ens.Heal(lonely))
	final := await(t, statuses, "the end")
	require.ErrorIs(t, final.Err, leaderelection.ErrSessionExpired)
	_, open := <-statuses
	require.False(t, open)
	leadsOn(t, next, l2)
	t.Logf("healed; the old candidate's end after %v", since(final.at))
	ready(t, ens)
}

// pauseClientsServer freezes the server of the leader's client for longer than
// the session lives. The client cannot go elsewhere.
func pauseClientsServer(t *testing.T, ens *ensemble.Ensemble) {
	frozen, others := serverOf(t, ens, false)
	conn := connectTo(t, quickTimeout, ens.Addr(frozen))
	elsewhere := connectTo(t, sessionTimeout, addrsOf(ens, others)...)
	node := commonNode(t, elsewhere, conn)
	h := newHistory()
	c, _ := lead(t, conn, node)
	statuses := listen(t, c)
	next := follow(t, elsewhere, node, c)
	successions := listen(t, next)
	h.granted("old", c.ID(), settled(t, c, statuses, quickTimeout))

	at := time.Now()
	require.NoError(t, ens.Pause(frozen))
	suspended := suspension(t, statuses, at)
	l2, led := succession(t, successions)
	h.granted("new", next.ID(), l2)
	require.NoError(t, h.check())
	require.True(t, suspended.at.Before(led), "the old leader was told %v after the new one", suspended.at.Sub(led))
	t.Logf("Suspended %v after the pause, the next leads after %v", suspended.at.Sub(at).Round(time.Millisecond), led.Sub(at).Round(time.Millisecond))

	require.NoError(t, ens.Resume(frozen))
	require.ErrorIs(t, await(t, statuses, "the end").Err, leaderelection.ErrSessionExpired)
	leadsOn(t, next, l2)
}

// pauseShortly freezes the server of the leader's client for less than the
// lease.
func pauseShortly(t *testing.T, ens *ensemble.Ensemble) {
	const timeout = 8 * time.Second
	frozen, others := serverOf(t, ens, false)
	conn := connectTo(t, timeout, ens.Addr(frozen))
	elsewhere := connectTo(t, timeout, addrsOf(ens, others)...)
	node := commonNode(t, elsewhere, conn)
	c, l := lead(t, conn, node)
	next := follow(t, elsewhere, node, c)
	fullLease(t, l, timeout)
	require.NoError(t, ens.Pause(frozen))
	<-time.After(timeout / 8)
	require.NoError(t, ens.Resume(frozen))
	stillLeads(t, c, l)
	next.quiet(t, 0)
}

// stillLeads waits for a proof that is later than the call, and checks that
// nothing has happened meanwhile.
func stillLeads(t *testing.T, c *candidate, l *leaderelection.Leadership) {
	t.Helper()
	before := l.Deadline()
	eventually(t, func() bool { return l.Err() != nil || l.Deadline().After(before) }, "no proof arrives")
	require.NoError(t, l.Err())
	_, err := c.Multi()
	require.NoError(t, err, "the ensemble confirms it")
	c.quiet(t, 0)
}

// killClientsServer kills the server of the leader's client, which goes to
// another one within the lease.
func killClientsServer(t *testing.T, ens *ensemble.Ensemble) {
	const timeout = 8 * time.Second
	killed, others := serverOf(t, ens, false)
	conn := connectTo(t, timeout, ens.Addrs()...)
	elsewhere := connectTo(t, timeout, addrsOf(ens, others)...)
	node := commonNode(t, elsewhere, conn)
	c, l := lead(t, conn, node)
	next := follow(t, elsewhere, node, c)
	last := follow(t, conn, node, next)
	for i := 0; conn.server() < 0 || conn.link[conn.server()] != conn.link[killed]; i++ {
		require.Less(t, i, 20, "the client does not get to server %d", killed)
		conn.link.drop()
		goesOn(t, conn)
	}
	fullLease(t, l, timeout)
	session := conn.SessionID()
	require.NoError(t, ens.Kill(killed))
	eventually(t, func() bool { return conn.State() == zk.StateHasSession && conn.server() != killed }, "the client goes to another server")
	stillLeads(t, c, l)
	require.Equal(t, session, conn.SessionID())
	next.quiet(t, 0)
	last.quiet(t, 0)

	// And succession is as it was.
	c.resign(t)
	next.leads(t)
	next.resign(t)
	last.leads(t)
}

// killEnsembleLeader kills the server that leads the ensemble. All clients lose
// their connections for the time of the servers' election.
func killEnsembleLeader(t *testing.T, ens *ensemble.Ensemble) {
	const timeout = 8 * time.Second
	killed, _ := serverOf(t, ens, true)
	var conns []*client
	for range 3 {
		conns = append(conns, connectTo(t, timeout, ens.Addrs()...))
	}
	node := newNode(t, conns[0])
	for _, conn := range conns {
		_, err := conn.Sync(node)
		require.NoError(t, err)
	}
	h := newHistory()
	c, l := lead(t, conns[0], node)
	h.granted("leader", c.ID(), l)
	next := follow(t, conns[1], node, c)
	last := follow(t, conns[2], node, next)
	fullLease(t, l, timeout)

	require.NoError(t, ens.Kill(killed))
	at := time.Now()
	eventually(t, func() bool {
		i, err := ens.Leader()
		return err == nil && i != killed
	}, "another server leads")
	// The lease may end meanwhile; the session does not.
	eventually(t, func() bool {
		if c.Current().Role != leaderelection.Leader {
			return false
		}
		_, err := c.Multi()
		return err == nil
	}, "the leader is the leader again")
	t.Logf("the leader could act again after %v", time.Since(at).Round(time.Millisecond))
	require.Equal(t, l.Token(), c.Current().Leadership.Token())
	next.quiet(t, 0)
	last.quiet(t, 0)
	for drained := false; !drained; {
		select {
		case s := <-c.Status():
			require.True(t, s.Role == leaderelection.Suspended || s.Role == leaderelection.Leader, "%v", s)
			if s.Role == leaderelection.Leader {
				require.Equal(t, l.Token(), s.Leadership.Token())
				h.granted("leader", c.ID(), s.Leadership)
			}
		default:
			drained = true
		}
	}
	electiontest.Confirm(t, c.Resign)
	l2 := next.leads(t)
	h.granted("next", next.ID(), l2)
	next.resign(t)
	h.granted("last", last.ID(), last.leads(t))
	require.NoError(t, h.check())
}

// shortLoss cuts the leader's connections for less than its lease.
func shortLoss(t *testing.T, ens *ensemble.Ensemble) {
	const timeout = 8 * time.Second
	conn, elsewhere := connectTo(t, timeout, ens.Addrs()...), connectTo(t, timeout, ens.Addrs()...)
	node := newNode(t, conn)
	_, err := elsewhere.Sync(node)
	require.NoError(t, err)
	c, l := lead(t, conn, node)
	next := follow(t, elsewhere, node, c)
	last := follow(t, conn, node, next)
	session := conn.SessionID()
	for _, how := range []struct{ begin, end func(link) }{
		{link.drop, link.restore}, {link.cut, link.restore}, {link.freeze, link.thaw},
	} {
		fullLease(t, l, timeout)
		how.begin(conn.link)
		<-time.After(timeout / 16)
		how.end(conn.link)
		stillLeads(t, c, l)
		next.quiet(t, 0)
		last.quiet(t, 0)
	}
	require.Equal(t, session, conn.SessionID())
	names := children(t, elsewhere, node)
	slices.SortFunc(names, func(a, b string) int {
		return int(statOf(t, elsewhere, node+"/"+a).Czxid - statOf(t, elsewhere, node+"/"+b).Czxid)
	})
	require.Equal(t, []string{base(c), base(next), base(last)}, names)
}

// sessionExpires has the ensemble expire a leader's session by itself, since
// nothing arrives from it.
func sessionExpires(t *testing.T, ens *ensemble.Ensemble) {
	const timeout = shortTimeout
	conn, elsewhere := connectTo(t, timeout, ens.Addrs()...), connectTo(t, timeout, ens.Addrs()...)
	node := newNode(t, conn)
	_, err := elsewhere.Sync(node)
	require.NoError(t, err)
	h := newHistory()
	c, l := lead(t, conn, node)
	h.granted("old", c.ID(), l)
	follower := follow(t, conn, node, c)
	next := follow(t, elsewhere, node, follower)
	conn.link.freeze()
	h.granted("new", next.ID(), next.leads(t))
	require.NoError(t, h.check())
	require.Equal(t, leaderelection.Suspended, c.Current().Role)
	conn.link.restore()

	c.ends(t, leaderelection.ErrSessionExpired) // once, and then the close
	follower.ends(t, leaderelection.ErrSessionExpired)
	for range 2 {
		require.ErrorIs(t, c.ElectLeader(), leaderelection.ErrCandidacyOver)
		require.NoError(t, c.Resign(), "nothing is left of it")
		_, open := <-c.Status()
		require.False(t, open)
	}
	require.Equal(t, []string{base(next)}, children(t, elsewhere, node))
}

// checkerFindsOverlap shows that two leaders would be noticed: a candidate that
// was told a session timeout far longer than what the server has granted does
// not know that its session is over.
func checkerFindsOverlap(t *testing.T, ens *ensemble.Ensemble) {
	lonely, others := serverOf(t, ens, false)
	conn := connectTo(t, quickTimeout, ens.Addr(lonely))
	elsewhere := connectTo(t, quickTimeout, addrsOf(ens, others)...)
	node := newNode(t, conn)
	_, err := elsewhere.Sync(node)
	require.NoError(t, err)
	h := newHistory()
	handshake.Of(conn.Conn).Grant(time.Minute) // it is 2 s
	c, l := lead(t, conn, node, forSession(time.Minute))
	term := h.granted("misled", c.ID(), l)
	next := follow(t, elsewhere, node, c)

	require.NoError(t, ens.CutOff(lonely))
	h.granted("next", next.ID(), next.leads(t))
	assert.ErrorContains(t, h.check(), "has not ended yet")
	require.NoError(t, ens.Heal(lonely))
	await(t, l.Done(), "the end")
	h.ended(term, l.Err())
	err = h.check()
	require.ErrorContains(t, err, "before the end of misled")
	t.Logf("as it should, the checker says: %v", err)
}

// leadsOn waits until a candidate leads with the token of l. It may have been suspended in the
// meantime, because a busy machine answers late.
func leadsOn(t *testing.T, c *candidate, l *leaderelection.Leadership) {
	t.Helper()
	eventually(t, func() bool {
		now := c.Current()
		return now.Role == leaderelection.Leader && now.Leadership.Token() == l.Token()
	}, "the successor leads no more")
}
