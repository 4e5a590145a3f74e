package zktest_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestStaleReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		a, _ := connect(t, s, 6*time.Second)
		b, _ := connect(t, s, 6*time.Second)
		mustCreate(t, a, "/leader", "a", zk.FlagEphemeral)
		s.Partition(a.SessionID())
		_, _, gone, err := b.ExistsW("/leader")
		if err != nil {
			t.Fatal(err)
		}
		<-gone
		if ok, _, err := a.Exists("/leader"); !ok || err != nil || a.State() != zk.StateHasSession {
			t.Errorf("the cut off client noticed: %v %v %v", ok, err, a.State())
		}
		mustCreate(t, b, "/leader", "b", zk.FlagEphemeral)
		if data, _, err := a.Get("/leader"); string(data) != "a" || err != nil {
			t.Errorf("it reads %q %v", data, err)
		}
		done := make(chan error)
		go func() {
			_, err := a.Set("/leader", []byte("mine"), -1)
			done <- err
		}()
		if err := <-done; err != zk.ErrConnectionClosed {
			t.Errorf("its write: %v", err)
		}
		s.Heal()
		if data, _, err := b.Get("/leader"); string(data) != "b" || err != nil {
			t.Errorf("after all: %q %v", data, err)
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
