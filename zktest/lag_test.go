package zktest_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// A server that is a second behind shows everything a second later, and answers writes
// a second later, which other servers show immediately.
func TestLagBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := zktest.Cluster(t, 3)
		a, _ := connectFrom(t, e, 0, 10*time.Second)
		b, _ := connectFrom(t, e, 1, 10*time.Second)
		e.Server(1).LagBy(time.Second)
		start := time.Now()
		took := func(what string, want time.Duration) {
			t.Helper()
			if d := time.Since(start); d != want {
				t.Errorf("%s after %v, not %v", what, d, want)
			}
			start = time.Now()
		}
		_, _, created, err := b.ExistsW("/x")
		if err != nil {
			t.Fatal(err)
		}
		mustCreate(t, a, "/x", "", 0)
		took("a write elsewhere", 0)
		if ok, _, err := b.Exists("/x"); ok || err != nil {
			t.Errorf("a read: %v %v", ok, err)
		}
		took("a read", 0)
		if ev := <-created; ev.Type != zk.EventNodeCreated {
			t.Errorf("event %+v", ev)
		}
		took("the event", time.Second)
		if ok, _, err := b.Exists("/x"); !ok || err != nil {
			t.Errorf("a read after a second: %v %v", ok, err)
		}
		if _, err := b.Sync("/"); err != nil {
			t.Error(err)
		}
		took("a sync without anything to catch up with", 0)
		mustCreate(t, a, "/y", "", 0)
		time.Sleep(300 * time.Millisecond)
		if _, err := b.Sync("/"); err != nil {
			t.Error(err)
		}
		took("a sync", time.Second)
		done := make(chan struct{})
		go func() {
			defer close(done)
			mustCreate(t, b, "/z", "", 0)
		}()
		synctest.Wait()
		if ok, _, err := a.Exists("/z"); !ok || err != nil {
			t.Errorf("elsewhere: %v %v", ok, err)
		}
		if strings.Contains(e.Server(1).Tree(), "z\n") || !strings.Contains(e.Tree(), "z\n") {
			t.Error("the server shows its client's write too early")
		}
		<-done
		took("the answer to a write", time.Second)
		if _, err := b.Create("/z", nil, 0, open); err != zk.ErrNodeExists {
			t.Errorf("a write that fails: %v", err)
		}
		took("the answer to a write that fails", time.Second)
		c, _ := connectFrom(t, e, 1, 10*time.Second)
		took("a new session", time.Second)
		c.Close()
		took("the end of a session", time.Second)
		e.Server(1).LagBy(2 * time.Second)
		mustCreate(t, b, "/late", "", 0)
		took("the answer with another lag", 2*time.Second)
		time.Sleep(time.Minute)
		if n := len(e.Server(1).Sessions()); n != 2 {
			t.Errorf("%d sessions", n)
		}
		start = time.Now()
		time.AfterFunc(time.Millisecond, func() { e.Server(1).Heal() })
		mustCreate(t, b, "/last", "", 0)
		took("the answer of a server that is healed", time.Millisecond)
	})
}

// Requests behind a write wait for its answer, and events of the write and of what came
// before it go first.
func TestLagKeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t, zktest.WithTick(time.Second))
		other, _ := connect(t, s, 10*time.Second)
		c, _ := connect(t, s, 10*time.Second)
		_, _, x, err := c.ExistsW("/x")
		if err != nil {
			t.Fatal(err)
		}
		_, _, own, err := c.ExistsW("/own")
		if err != nil {
			t.Fatal(err)
		}
		s.LagBy(time.Second)
		go other.Create("/x", nil, 0, open)
		synctest.Wait()
		time.Sleep(time.Second / 2)
		hook := s.After(zktest.Match{Op: zktest.OpCreate, Path: "/own"}, zktest.Pass)
		start := time.Now()
		answered := make(chan time.Duration, 2)
		go func() {
			if _, err := c.Create("/own", nil, 0, open); err != nil {
				t.Error(err)
			}
			if len(x) != 1 || len(own) != 1 {
				t.Errorf("%d and %d events before the answer", len(x), len(own))
			}
			answered <- time.Since(start)
		}()
		synctest.Wait()
		<-hook.Ran()
		go func() {
			if ok, _, err := c.Exists("/own"); !ok || err != nil {
				t.Errorf("a read behind the write: %v %v", ok, err)
			}
			answered <- time.Since(start)
		}()
		for range 2 {
			if d := <-answered; d != time.Second {
				t.Errorf("answered after %v", d)
			}
		}
	})
}

// A server that lags closes the connection of a session that has ended when it has
// applied the end. Without a majority nothing is applied.
func TestLagAndFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := zktest.Cluster(t, 3)
		a, events := connectFrom(t, e, 0, 10*time.Second)
		s := e.Server(0)
		s.LagBy(time.Second)
		start := time.Now()
		if err := s.ExpireSession(a.SessionID()); err != nil {
			t.Fatal(err)
		}
		waitState(t, events, zk.StateDisconnected)
		if d := time.Since(start); d != time.Second {
			t.Errorf("closed after %v", d)
		}
		waitState(t, events, zk.StateHasSession)
		for a.Server() != s.Name() {
			e.Server(0).LagBy(time.Millisecond)
			e.Server(1).DropConnections()
			e.Server(2).DropConnections()
			waitState(t, events, zk.StateHasSession)
		}
		// The lag ends with a partition, and the partition with Heal.
		done := make(chan error, 1)
		s.Partition()
		go func() {
			_, err := a.Create("/stalled", nil, 0, open)
			done <- err
		}()
		time.Sleep(time.Second)
		if len(done) != 0 || strings.Contains(e.Tree(), "stalled") {
			t.Error("a server that is cut off applies a write")
		}
		s.Heal()
		if err := <-done; err != nil {
			t.Error(err)
		}
		// A lag survives a pause of the server, and an election.
		s.LagBy(time.Second)
		s.Pause()
		e.Leader().Stop()
		time.Sleep(3 * time.Second)
		s.Resume()
		time.Sleep(20 * time.Second)
		if _, err := a.Sync("/"); err != nil {
			t.Error(err)
		}
		start = time.Now()
		mustCreate(t, a, "/x", "", 0)
		if d := time.Since(start); d != 0 && d != time.Second {
			t.Errorf("answered after %v", d)
		}
	})
}

func TestLagByNothing(t *testing.T) {
	s := zktest.Start(t)
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	s.LagBy(0)
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
