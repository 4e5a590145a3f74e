package zktest_test

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zktest"
)

func connectFrom(t *testing.T, c *zktest.Ensemble, server int, timeout time.Duration) (*zk.Conn, <-chan zk.Event) {
	t.Helper()
	events, tell := allEvents()
	conn, _, err := c.ConnectFrom(server, timeout, tell)
	if err != nil {
		t.Fatal(err)
	}
	waitState(t, events, zk.StateHasSession)
	return conn, events
}

func TestClusterFailOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := zktest.Cluster(t, 3)
		a, events := connectFrom(t, e, 0, 10*time.Second)
		b, _ := connectFrom(t, e, 1, 10*time.Second)
		if a.Server() != e.Server(0).Name() || b.Server() != e.Server(1).Name() {
			t.Errorf("connected to %s and %s", a.Server(), b.Server())
		}
		mustCreate(t, a, "/e", "", zk.FlagEphemeral)
		if ok, _, err := b.Exists("/e"); !ok || err != nil {
			t.Errorf("the other server: %v %v", ok, err)
		}
		_, _, ch, err := a.ExistsW("/x")
		if err != nil {
			t.Fatal(err)
		}
		id := a.SessionID()
		e.Server(0).Stop()
		waitState(t, events, zk.StateHasSession)
		synctest.Wait() // the client reads its last zxid unguarded while it sets its watches again
		if a.Server() == e.Server(0).Name() || a.SessionID() != id {
			t.Errorf("now at %s", a.Server())
		}
		if ok, _, err := a.Exists("/e"); !ok || err != nil {
			t.Errorf("the ephemeral node: %v %v", ok, err)
		}
		mustCreate(t, b, "/x", "", 0)
		if ev := <-ch; ev.Type != zk.EventNodeCreated {
			t.Errorf("the watch: %+v", ev)
		}
		e.Server(0).Restart(zktest.KeepTree)
		c, _ := connectFrom(t, e, 0, 10*time.Second)
		if ok, _, err := c.Exists("/x"); !ok || err != nil || c.Server() != e.Server(0).Name() {
			t.Errorf("the server that is back: %v %v", ok, err)
		}
	})
}

func TestClusterLeaderLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := zktest.Cluster(t, 3)
		a, events := connectFrom(t, e, 0, 10*time.Second)
		mustCreate(t, a, "/e", "", zk.FlagEphemeral)
		id, before := a.SessionID(), e.Server(0).Zxid()
		old := e.Leader()
		old.Partition()
		waitState(t, events, zk.StateDisconnected)
		waitState(t, events, zk.StateHasSession)
		if e.Leader() == old || a.SessionID() != id {
			t.Errorf("leader %d, session %x", e.Leader().ID(), a.SessionID())
		}
		mustCreate(t, a, "/x", "", 0)
		if z := e.Leader().Zxid(); z>>32 != before>>32+1 {
			t.Errorf("zxid 0x%x after 0x%x: no new epoch", z, before)
		}
		if strings.Contains(old.Tree(), "x\n") {
			t.Error("the server that is cut off knows the news")
		}
		old.Heal()
		if !strings.Contains(old.Tree(), "x\n") || old.Tree() != e.Tree() {
			t.Errorf("healed:\n%s", old.Tree())
		}
	})
}

// Two leaders: the client at the follower that is cut off believes for as long as
// it only reads and pings.
func TestClusterStaleFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := zktest.Cluster(t, 3)
		a, events := connectFrom(t, e, 0, 6*time.Second)
		b, _ := connectFrom(t, e, 1, 6*time.Second)
		mustCreate(t, a, "/leader", "a", zk.FlagEphemeral)
		mustCreate(t, a, "/seen", "", 0)
		_, _, own, err := a.GetW("/seen")
		if err != nil {
			t.Fatal(err)
		}
		_, _, gone, err := b.ExistsW("/leader")
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		e.Server(0).Partition()
		<-gone
		if d := time.Since(start); d < 4*time.Second || d > 7*time.Second {
			t.Errorf("expired after %v", d)
		}
		mustCreate(t, b, "/leader", "b", zk.FlagEphemeral)
		time.Sleep(time.Minute)
		if data, _, err := a.Get("/leader"); string(data) != "a" || err != nil || a.State() != zk.StateHasSession {
			t.Errorf("a reads %q %v in state %v", data, err, a.State())
		}
		if _, err := b.Set("/seen", nil, -1); err != nil {
			t.Fatal(err)
		}
		// Healed, it hears what it missed, in order, and then that its session is over.
		e.Server(0).Heal()
		if ev := <-own; ev.Type != zk.EventNodeDataChanged {
			t.Errorf("event %+v", ev)
		}
		waitState(t, events, zk.StateExpired)
	})
}

// A server that lags takes over the session of a client that has not seen more than
// it has itself, and shows it the old state until it has caught up.
func TestClusterLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := zktest.Cluster(t, 3)
		a, _ := connectFrom(t, e, 0, 6*time.Second)
		b, events := connectFrom(t, e, 0, 6*time.Second)
		id := b.SessionID()
		mustCreate(t, a, "/old", "", 0)
		e.Server(1).Lag()
		mustCreate(t, a, "/new", "", 0)
		e.Server(0).DropConnections()
		waitState(t, events, zk.StateHasSession)
		synctest.Wait()
		if b.Server() != e.Server(1).Name() || b.SessionID() != id || a.Server() != e.Server(2).Name() {
			t.Fatalf("the one that has seen little is at %s, the other one at %s", b.Server(), a.Server())
		}
		time.Sleep(time.Minute)
		if ok, _, err := b.Exists("/new"); ok || err != nil {
			t.Errorf("it reads the new state: %v %v", ok, err)
		}
		_, _, changes, err := b.ChildrenW("/")
		if err != nil {
			t.Fatal(err)
		}
		synced := make(chan error, 1)
		go func() {
			_, err := b.Sync("/")
			synced <- err
		}()
		synctest.Wait()
		select {
		case err := <-synced:
			t.Fatalf("synced: %v", err)
		case ev := <-changes:
			t.Fatalf("event: %+v", ev)
		default:
		}
		e.Server(1).Heal()
		if err := <-synced; err != nil {
			t.Error(err)
		}
		if ev := <-changes; ev.Type != zk.EventNodeChildrenChanged {
			t.Errorf("event: %+v", ev)
		}
		if ok, _, err := b.Exists("/new"); !ok || err != nil || b.SessionID() != id {
			t.Errorf("when it has caught up: %v %v", ok, err)
		}
		e.Leader().Lag()
		mustCreate(t, a, "/last", "", 0)
		if !strings.Contains(e.Leader().Tree(), "last") {
			t.Error("the leader lags")
		}
	})
}

// What a client writes at a server that lags is applied, and answered when the server
// has caught up: here not before its connection is lost.
func TestLagOfALoneServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, _ := connect(t, s, 6*time.Second)
		mustCreate(t, c, "/old", "", 0)
		s.Lag()
		answered := make(chan error, 1)
		go func() {
			_, err := c.Create("/new", nil, 0, open)
			answered <- err
		}()
		time.Sleep(3 * time.Second)
		if len(answered) != 0 {
			t.Error("it is answered")
		}
		s.DropConnections()
		if err := <-answered; err != zk.ErrConnectionClosed {
			t.Errorf("create: %v", err)
		}
		time.Sleep(time.Minute)
		if n := len(s.Sessions()); n != 1 || s.Connections() != 1 {
			t.Errorf("%d sessions, %d connections", n, s.Connections())
		}
		if ok, _, err := c.Exists("/new"); ok || err != nil {
			t.Errorf("a read: %v %v", ok, err)
		}
		s.Restart(zktest.KeepTree)
		time.Sleep(3 * time.Second)
		if ok, _, err := c.Exists("/new"); !ok || err != nil {
			t.Errorf("a read after the restart: %v %v", ok, err)
		}
	})
}

func TestClusterStalledWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := zktest.Cluster(t, 3)
		a, _ := connectFrom(t, e, 0, 30*time.Second)
		e.Server(0).Partition()
		done := make(chan error, 1)
		go func() {
			_, err := a.Create("/late", nil, 0, open)
			done <- err
		}()
		time.Sleep(5 * time.Second)
		select {
		case err := <-done:
			t.Fatalf("a write without quorum: %v", err)
		default:
		}
		e.Server(0).Heal()
		if err := <-done; err != nil {
			t.Errorf("the stalled write: %v", err)
		}
		if !strings.Contains(e.Tree(), "late") {
			t.Error("it is not there")
		}
	})
}

// Servers that are cut off might be alive: whoever is alone answers reads and no
// writes. It knows at once of servers that have stopped, and closes.
func TestClusterWithoutMajority(t *testing.T) {
	for name, lose := range map[string]func(*zktest.Server){
		"silent": func(s *zktest.Server) { s.Partition() },
		"paused": func(s *zktest.Server) { s.Pause() },
		"known":  (*zktest.Server).Stop,
	} {
		synctest.Test(t, func(t *testing.T) {
			e := zktest.Cluster(t, 3)
			a, events := connectFrom(t, e, 0, 6*time.Second)
			mustCreate(t, a, "/e", "", zk.FlagEphemeral)
			id := a.SessionID()
			lose(e.Server(1))
			lose(e.Server(2))
			if name == "known" {
				waitState(t, events, zk.StateDisconnected)
				time.Sleep(time.Minute)
				if n := e.Server(0).Connections(); n != 0 || a.State() == zk.StateHasSession {
					t.Errorf("%d connections, client in %v", n, a.State())
				}
			} else {
				time.Sleep(time.Minute)
				if ok, _, err := a.Exists("/e"); !ok || err != nil || a.Server() != e.Server(0).Name() {
					t.Errorf("%s: a read: %v %v", name, ok, err)
				}
			}
			time.Sleep(10 * time.Minute) // no leader, nobody's session ends
			if n := len(e.Server(0).Sessions()); n != 1 {
				t.Errorf("%s: %d sessions", name, n)
			}
			e.Server(1).Restart(zktest.KeepTree)
			e.Server(1).Heal()
			time.Sleep(10 * time.Second)
			if ok, _, err := a.Exists("/e"); !ok || err != nil || a.SessionID() != id {
				t.Errorf("%s: with a majority again: %v %v", name, ok, err)
			}
			mustCreate(t, a, "/x", "", 0)
		})
	}
}

// A connection that is left behind when its session moves on cannot write any more.
func TestClusterSessionMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := zktest.Cluster(t, 3)
		a, events := connectFrom(t, e, 0, 10*time.Second)
		e.Server(0).Blackhole(zktest.BothWays)
		waitState(t, events, zk.StateDisconnected)
		waitState(t, events, zk.StateHasSession)
		if a.Server() == e.Server(0).Name() {
			t.Fatal("it is still there")
		}
		s := e.Server(0).Sessions()
		if len(s) != 1 || s[0].Server == 0 {
			t.Errorf("sessions %+v", s)
		}
		e.Server(0).Heal()
		mustCreate(t, a, "/x", "", 0)
		synctest.Wait() // the server reads that the client had closed the connection
		if n := e.Server(0).Connections(); n != 0 {
			t.Errorf("%d connections left at the server", n)
		}
	})
}

// The older of two connections of one session, at different servers, is found out by
// its first write, which is not applied. It reads until then.
func TestClusterSessionOfTwoConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := zktest.Cluster(t, 3)
		old := newRawClient(t, e.Server(0), false)
		moved := attachRawClient(t, e.Server(1), false, old.session)
		if string(moved.session) != string(old.session) || len(e.Server(0).Sessions()) != 1 {
			t.Fatalf("sessions %+v", e.Server(0).Sessions())
		}
		old.send(t, ping, create("/old", nil))
		if err := old.reply(); err != nil {
			t.Errorf("a ping: %v", err)
		}
		if err := old.reply(); err != io.EOF {
			t.Errorf("a write: %v", err)
		}
		moved.send(t, create("/moved", nil))
		if err := moved.reply(); err != nil {
			t.Error(err)
		}
		if tree := e.Tree(); tree != "/\n  moved\n" {
			t.Errorf("tree\n%s", tree)
		}
		log := e.Server(0).Log().Filter(func(x zktest.Entry) bool { return errors.Is(x.Code, zk.ErrSessionMoved) })
		if len(log) != 1 || log[0].Path != "/old" {
			t.Errorf("log\n%v", log)
		}
	})
}

func TestClusterOverTCP(t *testing.T) {
	e := zktest.Cluster(t, 3)
	c, events, err := zk.Connect(e.Addrs(), 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	waitState(t, events, zk.StateHasSession)
	mustCreate(t, c, "/a", "", 0)
	data, _, err := c.Get("/zookeeper/config")
	if err != nil || !strings.Contains(string(data), "server.3=") {
		t.Errorf("config %q %v", data, err)
	}
}

// After the sync limit a follower that is cut off sends its clients away.
func TestClusterSyncLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := zktest.Cluster(t, 3, zktest.WithSyncLimit(10*time.Second))
		a, events := connectFrom(t, e, 0, 30*time.Second)
		start := time.Now()
		e.Server(0).Partition()
		waitState(t, events, zk.StateDisconnected)
		if d := time.Since(start); d != 10*time.Second {
			t.Errorf("it gave up after %v", d)
		}
		waitState(t, events, zk.StateHasSession)
		if a.Server() == e.Server(0).Name() {
			t.Error("it took the client back")
		}
		e.Server(0).Heal()
		b, _ := connectFrom(t, e, 0, 30*time.Second)
		if b.Server() != e.Server(0).Name() {
			t.Error("it is not back")
		}
	})
}

func TestConnectAfterClose(t *testing.T) {
	s, err := zktest.New()
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	s.Close()
	if _, _, err := s.Connect(time.Second); err == nil {
		t.Error("no error")
	}
	if _, err := s.Listen(); err == nil {
		t.Error("it listens")
	}
}

// TestClusterHealSession: a client that was cut off on its own comes back to what its
// server knows, which may be cut off too.
func TestClusterHealSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := zktest.Cluster(t, 3)
		a, _ := connectFrom(t, e, 0, 30*time.Second)
		b, _ := connectFrom(t, e, 1, 30*time.Second)
		knows := func(want string) {
			t.Helper()
			kids, _, err := a.Children("/")
			slices.Sort(kids)
			if got := strings.Join(kids, " "); got != want || err != nil {
				t.Errorf("it sees %s (%v), not %s", got, err, want)
			}
		}
		_, _, x, err := a.ExistsW("/x")
		if err != nil {
			t.Fatal(err)
		}
		_, _, y, err := a.ExistsW("/y")
		if err != nil {
			t.Fatal(err)
		}
		s := e.Server(0)
		s.Partition(a.SessionID())
		mustCreate(t, b, "/x", "", 0)
		knows("zookeeper")
		s.Partition()
		mustCreate(t, b, "/y", "", 0)
		s.Heal(a.SessionID())
		<-x
		knows("x zookeeper")
		if len(y) != 0 {
			t.Error("it is told of what its server does not know")
		}
		s.Heal()
		<-y
		knows("x y zookeeper")

		// One that is cut off on its own stays so when its server is back.
		s.Partition(a.SessionID())
		s.Pause()
		mustCreate(t, b, "/z", "", 0)
		s.Resume()
		knows("x y zookeeper")
		s.Heal(a.SessionID())
		knows("x y z zookeeper")
		mustCreate(t, a, "/mine", "", 0)
	})
}

// Back at a server that is cut off itself, and that has heard of the end of its
// session before, a connection is closed: it must not go on reading.
func TestHealAfterTheSessionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, events, err := s.Connect(4 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		for c.State() != zk.StateHasSession {
			<-events
		}
		old := c.SessionID()
		s.Partition(old)
		if err := s.ExpireSession(old); err != nil {
			t.Fatal(err)
		}
		s.Partition()
		s.Heal(old)
		synctest.Wait()
		if c.State() == zk.StateHasSession && c.SessionID() == old {
			t.Error("the connection of a session that has ended is open")
		}
	})
}
