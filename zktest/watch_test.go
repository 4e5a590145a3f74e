package zktest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// After a reconnect the server rejects the request that sets the watches again. The
// client library logs that and continues without these watches; it sets them at the
// next reconnect.
func TestSetWatchesFailsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, _ := connect(t, s, 10*time.Second)
		other, _ := connect(t, s, 10*time.Second)
		_, _, watch, err := c.ExistsW("/x")
		if err != nil {
			t.Fatal(err)
		}
		elsewhere := s.Before(zktest.Match{Op: zktest.OpSetWatches, Path: "/y"}, zktest.Cut)
		s.Before(zktest.Match{Op: zktest.OpSetWatches, Path: "/x", Nth: 1}, zktest.Fail(zk.ErrAPIError))
		s.DropConnections(c.SessionID())
		time.Sleep(3 * time.Second)
		if n := len(s.Watches("/x")); n != 0 || c.State() != zk.StateHasSession {
			t.Errorf("%d watches, client in %v", n, c.State())
		}
		mustCreate(t, other, "/x", "", 0)
		synctest.Wait()
		if len(watch) != 0 {
			t.Error("an event of a watch that the server does not have")
		}
		s.DropConnections(c.SessionID())
		if ev := <-watch; ev.Type != zk.EventNodeCreated {
			t.Errorf("after the second reconnect: %+v", ev)
		}
		select {
		case <-elsewhere.Ran():
			t.Error("a hook for other watches ran")
		default:
		}
	})
}

// A server that never lets watches be set again, and closes the connection instead,
// keeps a client that has watches from using its session.
func TestSetWatchesAlwaysCloses(t *testing.T) {
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
