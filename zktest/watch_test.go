package zktest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestSetWatches_FailsOnce fails if a client has watches after the server has rejected the request
// that sets them again. The client library logs that, and sets the watches at the next reconnect.
func TestSetWatches_FailsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, _ := connect(t, s, 10*time.Second)
		other, _ := connect(t, s, 10*time.Second)
		_, _, watch, err := c.ExistsW("/x")
		if err != nil {
			t.Fatal(err)
		}
		otherPath := s.Before(zktest.Match{Op: zktest.OpSetWatches, Path: "/y"}, zktest.Cut)
		s.Before(zktest.Match{Op: zktest.OpSetWatches, Path: "/x", Nth: 1}, zktest.Fail(zk.ErrAPIError))
		s.DropConnections(c.SessionID())
		time.Sleep(3 * time.Second)
		if n := len(s.Watches("/x")); n != 0 || c.State() != zk.StateHasSession {
			t.Errorf("%d watches, client in %v", n, c.State())
		}
		mustCreate(t, other, "/x", "", 0)
		synctest.Wait()
		if len(watch) != 0 {
			t.Error("an event of a watch that is not set")
		}
		s.DropConnections(c.SessionID())
		if ev := <-watch; ev.Type != zk.EventNodeCreated {
			t.Errorf("after the second reconnect: %+v", ev)
		}
		select {
		case <-otherPath.Ran():
			t.Error("a hook for other watches ran")
		default:
		}
	})
}

// TestDrop fails if a dropped event or setWatches request has an effect, if other events or requests are
// dropped as well, or if the log contains a dropped event.
func TestDrop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, _ := connect(t, s, 10*time.Second)
		other, _ := connect(t, s, 10*time.Second)
		watch := func(path string) <-chan zk.Event {
			_, _, w, err := c.ExistsW(path)
			if err != nil {
				t.Fatal(err)
			}
			return w
		}
		event := s.Drop(zktest.Match{Op: zktest.OpNotification, Path: "/x*", Session: c.SessionID(), Nth: 2})
		x1, x2, x3 := watch("/x1"), watch("/x2"), watch("/x3")
		for _, path := range []string{"/x1", "/x2", "/x3"} {
			mustCreate(t, other, path, "", 0)
		}
		<-event.Ran()
		synctest.Wait()
		if len(x1) != 1 || len(x2) != 0 || len(x3) != 1 || len(s.Watches()) != 0 {
			t.Errorf("events %d %d %d, watches %v", len(x1), len(x2), len(x3), s.Watches())
		}
		if n := s.Log().Count(zktest.OpNotification); n != 2 {
			t.Errorf("%d events in the log", n)
		}
		y := watch("/y")
		request := s.Drop(zktest.Match{Op: zktest.OpSetWatches, Path: "/y", Nth: 1})
		s.DropConnections(c.SessionID())
		<-request.Ran()
		mustCreate(t, other, "/y", "", 0)
		time.Sleep(time.Second)
		if len(y) != 0 || c.State() != zk.StateHasSession {
			t.Errorf("%d events of a watch that is not set, client in %v", len(y), c.State())
		}
		s.DropConnections(c.SessionID())
		if ev := <-y; ev.Type != zk.EventNodeCreated {
			t.Errorf("after the second reconnect: %+v", ev)
		}
		defer func() {
			if recover() == nil {
				t.Error("other requests cannot be dropped")
			}
		}()
		s.Drop(zktest.Match{Op: zktest.OpCreate})
	})
}

// TestSetWatches_AlwaysCloses fails if a client with watches can use its session although the server
// closes the connection whenever the client sets its watches again.
func TestSetWatches_AlwaysCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, _ := connect(t, s, 10*time.Second)
		if _, _, _, err := c.ExistsW("/x"); err != nil {
			t.Fatal(err)
		}
		hook := s.Before(zktest.Match{Op: zktest.OpSetWatches}, zktest.Cut)
		s.DropConnections()
		time.Sleep(30 * time.Second)
		if n := s.Log().Count(zktest.OpConnect); n < 10 {
			t.Errorf("%d handshakes in 30 s", n)
		}
		hook.Remove()
		time.Sleep(3 * time.Second)
		if n := len(s.Watches("/x")); n != 1 || c.State() != zk.StateHasSession {
			t.Errorf("%d watches, client in %v", n, c.State())
		}
	})
}
