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
