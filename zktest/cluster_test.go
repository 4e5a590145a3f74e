package zktest_test

import (
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

func TestClusterWithoutMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := zktest.Cluster(t, 3)
		a, _ := connectFrom(t, e, 0, 6*time.Second)
		mustCreate(t, a, "/e", "", zk.FlagEphemeral)
		e.Server(1).Stop()
		e.Server(2).Stop()
		if ok, _, err := a.Exists("/e"); !ok || err != nil {
			t.Errorf("a read: %v %v", ok, err)
		}
		time.Sleep(10 * time.Minute) // no leader, nobody's session ends
		if n := len(e.Server(0).Sessions()); n != 1 {
			t.Errorf("%d sessions", n)
		}
		e.Server(1).Restart(zktest.KeepTree)
		time.Sleep(10 * time.Second)
		if ok, _, err := a.Exists("/e"); !ok || err != nil {
			t.Errorf("with a majority again: %v %v", ok, err)
		}
		mustCreate(t, a, "/x", "", 0)
	})
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
