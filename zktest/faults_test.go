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

// TestDropConnections_KeepsSession checks that a client whose connection is dropped keeps its session and its
// watches.
func TestDropConnections_KeepsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		a, events := connect(t, s, 10*time.Second)
		b, _ := connect(t, s, 10*time.Second)
		mustCreate(t, a, "/e", "", zk.FlagEphemeral)
		mustCreate(t, a, "/w", "", 0)
		_, _, set, err := a.GetW("/w")
		require.NoError(t, err)
		_, _, later, err := a.ExistsW("/later")
		require.NoError(t, err)
		id := a.SessionID()
		gate := s.Before(zktest.Match{Op: zktest.OpConnect, Session: id}, zktest.Cut)
		assert.Equal(t, 1, s.DropConnections(id), "connections dropped")
		<-gate.Ran()
		assert.Empty(t, s.Watches(), "watches without a connection")
		if _, err := b.Set("/w", nil, -1); err != nil { // set the data while client a is disconnected
			t.Fatal(err)
		}
		gate.Remove()
		waitState(t, events, zk.StateHasSession)
		// Wait, because the client library reads its last zxid without a lock while it sets its watches again.
		synctest.Wait()
		assert.Equal(t, zk.EventNodeDataChanged, (<-set).Type, "event of a change during the disconnection")
		mustCreate(t, b, "/later", "", 0)
		assert.Equal(t, zk.EventNodeCreated, (<-later).Type, "event after the reconnect")
		if _, stat, err := a.Exists("/e"); err != nil || stat.EphemeralOwner != id || a.SessionID() != id {
			t.Errorf("the session of the client has changed: %v, %v", stat, err)
		}
		assert.Equal(t, 1, s.Log().Session(id).Count(zktest.OpSetWatches), "setWatches")
	})
}

// TestBlackhole_StopsOneDirection checks that no packets pass in the direction of the black hole, and that packets in
// the other direction do.
func TestBlackhole_StopsOneDirection(t *testing.T) {
	for _, dir := range []zktest.Direction{zktest.ToServer, zktest.ToClient, zktest.BothWays} {
		synctest.Test(t, func(t *testing.T) {
			s := zktest.Start(t)
			a, events := connect(t, s, 6*time.Second)
			b, _ := connect(t, s, 6*time.Second)
			mustCreate(t, a, "/e", "", zk.FlagEphemeral)
			_, _, gone, err := b.ExistsW("/e")
			require.NoError(t, err)
			start := time.Now()
			s.Blackhole(dir, a.SessionID())
			waitState(t, events, zk.StateDisconnected)
			// go-zookeeper closes the connection 2/3 of the timeout after the last packet.
			if d := time.Since(start); d < 2*time.Second || d > 4*time.Second {
				t.Errorf("direction %d: the client is disconnected after %v", dir, d)
			}
			if dir&zktest.ToServer != 0 {
				s.Refuse(true)
				<-gone
				if d := time.Since(start); d < 4*time.Second || d > 7*time.Second {
					t.Errorf("direction %d: the session has expired after %v", dir, d)
				}
			}
		})
	}
}

// TestBlackhole_DoesNotAffectNextConnection checks that a black hole for a session does not affect the next
// connection of the session, and that a hook can prevent the next connection.
func TestBlackhole_DoesNotAffectNextConnection(t *testing.T) {
	for _, rejectConnects := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := zktest.Start(t)
			a, events := connect(t, s, 6*time.Second)
			id := a.SessionID()
			if rejectConnects {
				s.Before(zktest.Match{Op: zktest.OpConnect, Session: id}, zktest.Cut)
			}
			s.Blackhole(zktest.BothWays, id)
			waitState(t, events, zk.StateDisconnected)
			time.Sleep(30 * time.Second)
			reconnected := a.State() == zk.StateHasSession && a.SessionID() == id
			if alive := len(s.Sessions()) == 1; reconnected == rejectConnects || alive == rejectConnects {
				t.Errorf("handshakes are rejected: %v; the client has reconnected: %v; the session exists: %v", rejectConnects, reconnected, alive)
			}
		})
	}
}

// TestHeal_DeliversPacketsOfBlackhole checks that Heal delivers the packets that a black hole has held back.
func TestHeal_DeliversPacketsOfBlackhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, _ := connect(t, s, 30*time.Second)
		s.Blackhole(zktest.ToClient)
		done := make(chan error, 1)
		go func() {
			_, err := c.Create("/a", nil, 0, openACL)
			done <- err
		}()
		synctest.Wait()
		assert.Contains(t, s.Tree(), "  a\n", "the request was not applied")
		s.Heal()
		assert.NoError(t, <-done, "after Heal")
		s.Blackhole(zktest.ToServer)
		go func() {
			_, err := c.Create("/b", nil, 0, openACL)
			done <- err
		}()
		synctest.Wait()
		assert.NotContains(t, s.Tree(), "  b\n", "the request was applied")
		s.Heal()
		assert.NoError(t, <-done)
	})
}

// TestDelay_AddsLatencyOnly checks that a round trip takes exactly the delays of both directions, and that
// requests that are in flight together do not wait for each other.
func TestDelay_AddsLatencyOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, _ := connect(t, s, 30*time.Second)
		s.Delay(zktest.ToServer, 20*time.Millisecond)
		s.Delay(zktest.ToClient, 30*time.Millisecond)
		start := time.Now()
		mustCreate(t, c, "/a", "", 0)
		assert.Equal(t, 50*time.Millisecond, time.Since(start), "a round trip takes")
		// The requests are delayed together, because packets in transit do not wait for each other.
		start = time.Now()
		done := make(chan error)
		for range 10 {
			go func() {
				_, _, err := c.Get("/a")
				done <- err
			}()
		}
		for range 10 {
			assert.NoError(t, <-done)
		}
		assert.Equal(t, 50*time.Millisecond, time.Since(start), "ten requests take")
		s.Delay(zktest.BothWays, 0)
		start = time.Now()
		_, _, err := c.Get("/a")
		assert.NoError(t, err)
		assert.Zero(t, time.Since(start), "without a delay")
	})
}
