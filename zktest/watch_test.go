package zktest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestSetWatches_ClientLosesWatchesAfterFailure checks that a client has no watches after a hook has rejected the
// request with which the client sets its watches again. The client library logs the error, and sets the watches at
// the next reconnect.
func TestSetWatches_ClientLosesWatchesAfterFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, _ := connect(t, s, 10*time.Second)
		other, _ := connect(t, s, 10*time.Second)
		_, _, watch, err := c.ExistsW("/x")
		require.NoError(t, err)
		otherPath := s.Before(zktest.Match{Op: zktest.OpSetWatches, Path: "/y"}, zktest.Cut)
		s.Before(zktest.Match{Op: zktest.OpSetWatches, Path: "/x", Nth: 1}, zktest.Fail(zk.ErrAPIError))
		s.DropConnections(c.SessionID())
		time.Sleep(3 * time.Second)
		n := len(s.Watches("/x"))
		assert.True(t, n == 0 && c.State() == zk.StateHasSession, "%d watches, client in %v", n, c.State())
		mustCreate(t, other, "/x", "", 0)
		synctest.Wait()
		assert.Empty(t, watch, "an event of a watch that is not set")
		s.DropConnections(c.SessionID())
		assert.Equal(t, zk.EventNodeCreated, (<-watch).Type, "after the second reconnect")
		select {
		case <-otherPath.Ran():
			t.Error("a hook for the watches of another path ran")
		default:
		}
	})
}

// TestDrop_DropsOnlyMatchingEventsAndSetWatches checks that a dropped event or setWatches request has no effect,
// that no other events or requests are dropped, and that the log does not contain a dropped event.
func TestDrop_DropsOnlyMatchingEventsAndSetWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, _ := connect(t, s, 10*time.Second)
		other, _ := connect(t, s, 10*time.Second)
		watch := func(path string) <-chan zk.Event {
			_, _, w, err := c.ExistsW(path)
			require.NoError(t, err)
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
			t.Errorf("the client has received %d, %d and %d events, and the watches %v remain", len(x1), len(x2), len(x3), s.Watches())
		}
		assert.Equal(t, 2, s.Log().Count(zktest.OpNotification), "events in the log")
		y := watch("/y")
		request := s.Drop(zktest.Match{Op: zktest.OpSetWatches, Path: "/y", Nth: 1})
		s.DropConnections(c.SessionID())
		<-request.Ran()
		mustCreate(t, other, "/y", "", 0)
		time.Sleep(time.Second)
		assert.Empty(t, y, "events of a watch that is not set")
		assert.Equal(t, zk.StateHasSession, c.State())
		s.DropConnections(c.SessionID())
		assert.Equal(t, zk.EventNodeCreated, (<-y).Type, "after the second reconnect")
		defer func() {
			assert.NotNil(t, recover(), "other requests cannot be dropped")
		}()
		s.Drop(zktest.Match{Op: zktest.OpCreate})
	})
}

// TestSetWatches_CutMakesSessionUnusable checks that a client with watches cannot use its session while a hook
// cuts the connection whenever the client sets its watches again.
func TestSetWatches_CutMakesSessionUnusable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, _ := connect(t, s, 10*time.Second)
		_, _, _, err := c.ExistsW("/x")
		require.NoError(t, err)
		hook := s.Before(zktest.Match{Op: zktest.OpSetWatches}, zktest.Cut)
		s.DropConnections()
		time.Sleep(30 * time.Second)
		assert.GreaterOrEqual(t, s.Log().Count(zktest.OpConnect), 10, "handshakes in 30 s")
		hook.Remove()
		time.Sleep(3 * time.Second)
		if n := len(s.Watches("/x")); n != 1 || c.State() != zk.StateHasSession {
			t.Errorf("the server stores %d watches, and the client is in state %v", n, c.State())
		}
	})
}
