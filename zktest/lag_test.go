package zktest_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestLagBy_ShowsTransactionsOneSecondLater checks that a server that lags by a second shows a transaction, and
// answers a write, one second late, and that other servers show the write without a delay.
func TestLagBy_ShowsTransactionsOneSecondLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := zktest.StartEnsemble(t, 3)
		a, _ := connectFrom(t, e, 0, 10*time.Second)
		b, _ := connectFrom(t, e, 1, 10*time.Second)
		e.Server(1).LagBy(time.Second)
		start := time.Now()
		requireElapsed := func(what string, want time.Duration) {
			t.Helper()
			assert.Equal(t, want, time.Since(start))
			start = time.Now()
		}
		_, _, created, err := b.ExistsW("/x")
		require.NoError(t, err)
		mustCreate(t, a, "/x", "", 0)
		requireElapsed("a write at another server", 0)
		assertExists(t, false, b, "/x", "a read")
		requireElapsed("a read", 0)
		assert.Equal(t, zk.EventNodeCreated, (<-created).Type, "event")
		requireElapsed("the event", time.Second)
		assertExists(t, true, b, "/x", "a read after a second")
		_, err = b.Sync("/")
		assert.NoError(t, err)
		requireElapsed("a sync without missing transactions", 0)
		mustCreate(t, a, "/y", "", 0)
		time.Sleep(300 * time.Millisecond)
		_, err = b.Sync("/")
		assert.NoError(t, err)
		requireElapsed("a sync", time.Second)
		done := make(chan struct{})
		go func() {
			defer close(done)
			mustCreate(t, b, "/z", "", 0)
		}()
		synctest.Wait()
		assertExists(t, true, a, "/z", "read at another server")
		if strings.Contains(e.Server(1).Tree(), "z\n") || !strings.Contains(e.Tree(), "z\n") {
			t.Error("the server shows its client's write too early")
		}
		<-done
		requireElapsed("the answer to a write", time.Second)
		_, err = b.Create("/z", nil, 0, openACL)
		assert.ErrorIs(t, err, zk.ErrNodeExists, "a write that fails")
		requireElapsed("the answer to a write that fails", time.Second)
		c, _ := connectFrom(t, e, 1, 10*time.Second)
		requireElapsed("a new session", time.Second)
		c.Close()
		requireElapsed("closing a session", time.Second)
		e.Server(1).LagBy(2 * time.Second)
		mustCreate(t, b, "/late", "", 0)
		requireElapsed("the answer with another lag", 2*time.Second)
		time.Sleep(time.Minute)
		assert.Len(t, e.Server(1).Sessions(), 2, "sessions")
		start = time.Now()
		time.AfterFunc(time.Millisecond, func() { e.Server(1).Heal() })
		mustCreate(t, b, "/last", "", 0)
		requireElapsed("the answer after Heal", time.Millisecond)
	})
}

// TestLagBy_KeepsOrder checks that a server that lags answers a request after earlier writes of the same client,
// and answers a write after it has sent the events of earlier transactions and of the write.
func TestLagBy_KeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t, zktest.WithTick(time.Second))
		other, _ := connect(t, s, 10*time.Second)
		c, _ := connect(t, s, 10*time.Second)
		_, _, x, err := c.ExistsW("/x")
		require.NoError(t, err)
		_, _, written, err := c.ExistsW("/own")
		require.NoError(t, err)
		s.LagBy(time.Second)
		go other.Create("/x", nil, 0, openACL)
		synctest.Wait()
		time.Sleep(time.Second / 2)
		hook := s.After(zktest.Match{Op: zktest.OpCreate, Path: "/own"}, zktest.Pass)
		start := time.Now()
		answered := make(chan time.Duration, 2)
		go func() {
			_, err := c.Create("/own", nil, 0, openACL)
			assert.NoError(t, err)
			assert.True(t, len(x) == 1 && len(written) == 1, "%d and %d events before the answer", len(x), len(written))
			answered <- time.Since(start)
		}()
		synctest.Wait()
		<-hook.Ran()
		go func() {
			assertExists(t, true, c, "/own", "a read after the write")
			answered <- time.Since(start)
		}()
		for range 2 {
			assert.Equal(t, time.Second, <-answered, "answered after")
		}
	})
}

// TestLagBy_CombinesWithOtherFaults checks that a server that lags does not close the connection of an expired
// session before the server has applied the expiry, and applies transactions only with a majority.
func TestLagBy_CombinesWithOtherFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := zktest.StartEnsemble(t, 3)
		a, events := connectFrom(t, e, 0, 10*time.Second)
		s := e.Server(0)
		s.LagBy(time.Second)
		start := time.Now()
		require.NoError(t, s.ExpireSession(a.SessionID()))
		waitState(t, events, zk.StateDisconnected)
		assert.Equal(t, time.Second, time.Since(start), "closed after")
		waitState(t, events, zk.StateHasSession)
		for a.Server() != s.Name() {
			e.Server(0).LagBy(time.Millisecond)
			e.Server(1).DropConnections()
			e.Server(2).DropConnections()
			waitState(t, events, zk.StateHasSession)
		}
		// Partition the lagging server, which must end the lag. Heal must then end the partition.
		done := make(chan error, 1)
		s.Partition()
		go func() {
			_, err := a.Create("/stalled", nil, 0, openACL)
			done <- err
		}()
		time.Sleep(time.Second)
		assert.True(t, len(done) == 0 && !strings.Contains(e.Tree(), "stalled"), "a server that is cut off applies a write")
		s.Heal()
		assert.NoError(t, <-done)
		// A pause and an election must not end the lag.
		s.LagBy(time.Second)
		s.Pause()
		e.Leader().Stop()
		time.Sleep(3 * time.Second)
		s.Resume()
		time.Sleep(20 * time.Second)
		_, err := a.Sync("/")
		assert.NoError(t, err)
		start = time.Now()
		mustCreate(t, a, "/x", "", 0)
		d := time.Since(start)
		assert.False(t, d != 0 && d != time.Second, "answered after %v", d)
	})
}

// TestLagBy_PanicsForZero checks that LagBy panics for a duration of 0.
func TestLagBy_PanicsForZero(t *testing.T) {
	s := zktest.Start(t)
	defer func() {
		assert.NotNil(t, recover(), "no panic")
	}()
	s.LagBy(0)
}

// TestLag_RejectsClientThatHasSeenLaterState checks that a server that lags rejects a client that has seen a later
// state, accepts another client, and does not show the later state to it.
func TestLag_RejectsClientThatHasSeenLaterState(t *testing.T) {
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
		assertExists(t, false, b, "/new", "a read at the server that lags")
		_, _, changes, err := b.ChildrenW("/")
		require.NoError(t, err)
		synced := make(chan error, 1)
		go func() {
			_, err := b.Sync("/")
			synced <- err
		}()
		synctest.Wait()
		select {
		case err := <-synced:
			t.Fatalf("Sync at the server that lags returns: %v", err)
		case ev := <-changes:
			t.Fatalf("the client receives an event while its server lags: %+v", ev)
		default:
		}
		e.Server(1).Heal()
		assert.NoError(t, <-synced)
		assert.Equal(t, zk.EventNodeChildrenChanged, (<-changes).Type, "event")
		if ok, _, err := b.Exists("/new"); !ok || err != nil || b.SessionID() != id {
			t.Errorf("after the server has caught up, Exists returns %v, %v", ok, err)
		}
		e.Leader().Lag()
		mustCreate(t, a, "/last", "", 0)
		assert.Contains(t, e.Leader().Tree(), "last", "the leader lags")
	})
}

// TestLag_SingleServerAppliesWrites checks that a single server that lags applies a write, and answers the write
// after the server has caught up.
func TestLag_SingleServerAppliesWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, _ := connect(t, s, 6*time.Second)
		mustCreate(t, c, "/old", "", 0)
		s.Lag()
		answered := make(chan error, 1)
		go func() {
			_, err := c.Create("/new", nil, 0, openACL)
			answered <- err
		}()
		time.Sleep(3 * time.Second)
		assert.Empty(t, answered, "the write is answered")
		s.DropConnections()
		assert.Equal(t, zk.ErrConnectionClosed, <-answered, "create")
		time.Sleep(time.Minute)
		n := len(s.Sessions())
		assert.True(t, n == 1 && s.Connections() == 1, "%d sessions, %d connections", n, s.Connections())
		assertExists(t, false, c, "/new", "a read")
		s.Restart(zktest.KeepTree)
		time.Sleep(3 * time.Second)
		assertExists(t, true, c, "/new", "a read after the restart")
	})
}
