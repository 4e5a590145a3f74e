package zktest_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestLagBy_Second fails if a server that is a second behind shows a transaction or answers a write
// at another time, or if other servers show the write later.
func TestLagBy_Second(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := zktest.StartEnsemble(t, 3)
		a, _ := connectFrom(t, e, 0, 10*time.Second)
		b, _ := connectFrom(t, e, 1, 10*time.Second)
		e.Server(1).LagBy(time.Second)
		start := time.Now()
		requireElapsed := func(what string, want time.Duration) {
			t.Helper()
			if d := time.Since(start); d != want {
				t.Errorf("%s after %v, want %v", what, d, want)
			}
			start = time.Now()
		}
		_, _, created, err := b.ExistsW("/x")
		if err != nil {
			t.Fatal(err)
		}
		mustCreate(t, a, "/x", "", 0)
		requireElapsed("a write at another server", 0)
		if ok, _, err := b.Exists("/x"); ok || err != nil {
			t.Errorf("a read: %v %v", ok, err)
		}
		requireElapsed("a read", 0)
		if ev := <-created; ev.Type != zk.EventNodeCreated {
			t.Errorf("event %+v", ev)
		}
		requireElapsed("the event", time.Second)
		if ok, _, err := b.Exists("/x"); !ok || err != nil {
			t.Errorf("a read after a second: %v %v", ok, err)
		}
		if _, err := b.Sync("/"); err != nil {
			t.Error(err)
		}
		requireElapsed("a sync without missing transactions", 0)
		mustCreate(t, a, "/y", "", 0)
		time.Sleep(300 * time.Millisecond)
		if _, err := b.Sync("/"); err != nil {
			t.Error(err)
		}
		requireElapsed("a sync", time.Second)
		done := make(chan struct{})
		go func() {
			defer close(done)
			mustCreate(t, b, "/z", "", 0)
		}()
		synctest.Wait()
		if ok, _, err := a.Exists("/z"); !ok || err != nil {
			t.Errorf("read at another server: %v %v", ok, err)
		}
		if strings.Contains(e.Server(1).Tree(), "z\n") || !strings.Contains(e.Tree(), "z\n") {
			t.Error("the server shows its client's write too early")
		}
		<-done
		requireElapsed("the answer to a write", time.Second)
		if _, err := b.Create("/z", nil, 0, open); err != zk.ErrNodeExists {
			t.Errorf("a write that fails: %v", err)
		}
		requireElapsed("the answer to a write that fails", time.Second)
		c, _ := connectFrom(t, e, 1, 10*time.Second)
		requireElapsed("a new session", time.Second)
		c.Close()
		requireElapsed("closing a session", time.Second)
		e.Server(1).LagBy(2 * time.Second)
		mustCreate(t, b, "/late", "", 0)
		requireElapsed("the answer with another lag", 2*time.Second)
		time.Sleep(time.Minute)
		if n := len(e.Server(1).Sessions()); n != 2 {
			t.Errorf("%d sessions", n)
		}
		start = time.Now()
		time.AfterFunc(time.Millisecond, func() { e.Server(1).Heal() })
		mustCreate(t, b, "/last", "", 0)
		requireElapsed("the answer after Heal", time.Millisecond)
	})
}

// TestLagBy_KeepsOrder fails if a request is answered before an earlier write, or a write before the
// events of earlier transactions and its own.
func TestLagBy_KeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t, zktest.WithTick(time.Second))
		other, _ := connect(t, s, 10*time.Second)
		c, _ := connect(t, s, 10*time.Second)
		_, _, x, err := c.ExistsW("/x")
		if err != nil {
			t.Fatal(err)
		}
		_, _, written, err := c.ExistsW("/own")
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
			if len(x) != 1 || len(written) != 1 {
				t.Errorf("%d and %d events before the answer", len(x), len(written))
			}
			answered <- time.Since(start)
		}()
		synctest.Wait()
		<-hook.Ran()
		go func() {
			if ok, _, err := c.Exists("/own"); !ok || err != nil {
				t.Errorf("a read after the write: %v %v", ok, err)
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

// TestLagBy_WithOtherFaults fails if a server that lags closes the connection of an expired session
// before it has applied the expiry, or applies a transaction without a majority.
func TestLagBy_WithOtherFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := zktest.StartEnsemble(t, 3)
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
		// A partition ends the lag, and Heal ends the partition.
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
		// A pause and an election do not end the lag.
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

// TestLagBy_InvalidDuration fails if a duration of 0 does not panic.
func TestLagBy_InvalidDuration(t *testing.T) {
	s := zktest.Start(t)
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	s.LagBy(0)
}

// TestLag_SessionMoves fails if a server that lags accepts a client that has seen a later state,
// rejects another client, or shows the later state.
func TestLag_SessionMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := zktest.StartEnsemble(t, 3)
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
			t.Fatalf("the client that has seen an earlier state is connected to %s, the other client to %s", b.Server(), a.Server())
		}
		time.Sleep(time.Minute)
		if ok, _, err := b.Exists("/new"); ok || err != nil {
			t.Errorf("a read at the server that lags: %v %v", ok, err)
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
			t.Fatalf("sync at the server that lags: %v", err)
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
			t.Errorf("after the server has caught up: %v %v", ok, err)
		}
		e.Leader().Lag()
		mustCreate(t, a, "/last", "", 0)
		if !strings.Contains(e.Leader().Tree(), "last") {
			t.Error("the leader lags")
		}
	})
}

// TestLag_SingleServer fails if a write at a server that lags is not applied, or is answered before
// the server has caught up.
func TestLag_SingleServer(t *testing.T) {
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
			t.Error("the write is answered")
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
