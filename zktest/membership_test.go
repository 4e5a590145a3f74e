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

// TestEnsemble_KeepsSessionWhenServerStops checks that a client keeps its session and its watches when its server
// stops.
func TestEnsemble_KeepsSessionWhenServerStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := zktest.StartEnsemble(t, 3)
		a, events := connectFrom(t, e, 0, 10*time.Second)
		b, _ := connectFrom(t, e, 1, 10*time.Second)
		assert.Equal(t, e.Server(0).Name(), a.Server())
		assert.Equal(t, e.Server(1).Name(), b.Server())
		mustCreate(t, a, "/e", "", zk.FlagEphemeral)
		assertExists(t, true, b, "/e", "read from the other server")
		_, _, ch, err := a.ExistsW("/x")
		require.NoError(t, err)
		id := a.SessionID()
		e.Server(0).Stop()
		waitState(t, events, zk.StateHasSession)
		// Wait, because the client library reads its last zxid without a lock while it sets its watches again.
		synctest.Wait()
		assert.True(t, a.Server() != e.Server(0).Name() && a.SessionID() == id, "connected to %s", a.Server())
		assertExists(t, true, a, "/e", "the ephemeral znode")
		mustCreate(t, b, "/x", "", 0)
		assert.Equal(t, zk.EventNodeCreated, (<-ch).Type, "the watch")
		e.Server(0).Restart(zktest.KeepTree)
		c, _ := connectFrom(t, e, 0, 10*time.Second)
		if ok, _, err := c.Exists("/x"); !ok || err != nil || c.Server() != e.Server(0).Name() {
			t.Errorf("Exists at the restarted server returns %v, %v", ok, err)
		}
	})
}

// TestEnsemble_ElectsLeaderWhenLeaderIsCutOff checks that the other servers elect a leader with a new epoch when
// the leader is cut off, and that the old leader catches up after the partition.
func TestEnsemble_ElectsLeaderWhenLeaderIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := zktest.StartEnsemble(t, 3)
		a, events := connectFrom(t, e, 0, 10*time.Second)
		mustCreate(t, a, "/e", "", zk.FlagEphemeral)
		id, before := a.SessionID(), e.Server(0).Zxid()
		old := e.Leader()
		old.Partition()
		waitState(t, events, zk.StateDisconnected)
		waitState(t, events, zk.StateHasSession)
		assert.True(t, e.Leader() != old && a.SessionID() == id, "leader %d, session %x", e.Leader().ID(), a.SessionID())
		mustCreate(t, a, "/x", "", 0)
		z := e.Leader().Zxid()
		assert.Equal(t, before>>32+1, z>>32, "zxid 0x%x after 0x%x: no new epoch", z, before)
		assert.NotContains(t, old.Tree(), "x\n", "the server that is cut off has a later write")
		old.Heal()
		assert.True(t, strings.Contains(old.Tree(), "x\n") && old.Tree() == e.Tree(), "after Heal:\n%s", old.Tree())
	})
}

// TestEnsemble_NeitherWritesNorExpiresWithoutMajority checks that a server without a majority neither accepts
// writes nor expires sessions. A server whose peers are cut off or paused serves reads; a server whose peers have
// stopped disconnects its clients.
func TestEnsemble_NeitherWritesNorExpiresWithoutMajority(t *testing.T) {
	for name, lose := range map[string]func(*zktest.Server){
		"cut off": func(s *zktest.Server) { s.Partition() },
		"paused":  func(s *zktest.Server) { s.Pause() },
		"stopped": (*zktest.Server).Stop,
	} {
		synctest.Test(t, func(t *testing.T) {
			e := zktest.StartEnsemble(t, 3)
			a, events := connectFrom(t, e, 0, 6*time.Second)
			mustCreate(t, a, "/e", "", zk.FlagEphemeral)
			id := a.SessionID()
			lose(e.Server(1))
			lose(e.Server(2))
			if name == "stopped" {
				waitState(t, events, zk.StateDisconnected)
				time.Sleep(time.Minute)
				if n := e.Server(0).Connections(); n != 0 || a.State() == zk.StateHasSession {
					t.Errorf("the server has %d connections, and the client is in state %v", n, a.State())
				}
			} else {
				time.Sleep(time.Minute)
				if ok, _, err := a.Exists("/e"); !ok || err != nil || a.Server() != e.Server(0).Name() {
					t.Errorf("%s: Exists returns %v, %v", name, ok, err)
				}
			}
			time.Sleep(10 * time.Minute) // wait: without a leader no session may expire
			if n := len(e.Server(0).Sessions()); n != 1 {
				t.Errorf("%s: %d sessions exist, want 1", name, n)
			}
			e.Server(1).Restart(zktest.KeepTree)
			e.Server(1).Heal()
			time.Sleep(10 * time.Second)
			if ok, _, err := a.Exists("/e"); !ok || err != nil || a.SessionID() != id {
				t.Errorf("%s: with a majority again, Exists returns %v, %v", name, ok, err)
			}
			mustCreate(t, a, "/x", "", 0)
		})
	}
}

// TestFollower_DisconnectsClientsAtSyncLimit checks that a follower that is cut off disconnects its clients after
// the time of WithSyncLimit.
func TestFollower_DisconnectsClientsAtSyncLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := zktest.StartEnsemble(t, 3, zktest.WithSyncLimit(10*time.Second))
		a, events := connectFrom(t, e, 0, 30*time.Second)
		start := time.Now()
		e.Server(0).Partition()
		waitState(t, events, zk.StateDisconnected)
		assert.Equal(t, 10*time.Second, time.Since(start), "disconnected after")
		waitState(t, events, zk.StateHasSession)
		assert.NotEqual(t, e.Server(0).Name(), a.Server(), "the client has connected to the same server")
		e.Server(0).Heal()
		b, _ := connectFrom(t, e, 0, 30*time.Second)
		assert.Equal(t, e.Server(0).Name(), b.Server(), "the server rejects clients after Heal")
	})
}
