package zktest_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestRestart_LosesGivenData checks that Restart keeps and loses exactly the data that its argument indicates.
func TestRestart_LosesGivenData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, events := connect(t, s, 6*time.Second)
		mustCreate(t, c, "/a", "x", 0)
		mustCreate(t, c, "/e", "", zk.FlagEphemeral)
		id := c.SessionID()
		s.Stop()
		time.Sleep(time.Minute) // no session may expire while the server is stopped
		s.Restart(zktest.KeepTree)
		waitState(t, events, zk.StateHasSession)
		if ok, _, err := c.Exists("/e"); !ok || err != nil || c.SessionID() != id {
			t.Errorf("after a restart with KeepTree, Exists returns %v, %v", ok, err)
		}
		s.Restart(zktest.LoseTree)
		waitState(t, events, zk.StateExpired)
		waitState(t, events, zk.StateHasSession)
		assertExists(t, false, c, "/a", "after LoseTree")
		mustCreate(t, c, "/a", "x", 0)
		s.Restart(zktest.LoseAll)
		time.Sleep(time.Minute)
		assert.NotEqual(t, zk.StateHasSession, c.State(), "a client that has seen a greater zxid has a session")
		c2, _ := connect(t, s, 6*time.Second)
		mustCreate(t, c2, "/a", "", 0)
	})
}

// TestEnsembleRestart_LosesGivenData checks that the restart of an ensemble keeps and loses exactly the data that
// its argument indicates, and that each server serves clients afterwards.
func TestEnsembleRestart_LosesGivenData(t *testing.T) {
	for loss, want := range map[zktest.Loss]struct {
		node, session, connects bool
		epoch                   int64
	}{
		zktest.KeepTree: {node: true, session: true, connects: true},
		zktest.LoseTree: {connects: true},
		zktest.LoseAll:  {epoch: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			e := zktest.StartEnsemble(t, 3)
			e.Leader().Stop() // the election starts an epoch that a rebuilt ensemble has not reached
			e.Server(2).Restart(zktest.KeepTree)
			c, events := connectFrom(t, e, 0, 6*time.Second)
			mustCreate(t, c, "/e", "x", zk.FlagEphemeral)
			id, before := c.SessionID(), e.Leader().Zxid()
			e.Server(0).Stop()
			e.Server(1).Partition()
			e.Restart(loss)
			if want.connects {
				waitState(t, events, zk.StateHasSession)
				ok, _, err := c.Exists("/e")
				if ok != want.node || err != nil || (c.SessionID() == id) != want.session {
					t.Errorf("loss %d: Exists returns %v, %v in session 0x%x after 0x%x", loss, ok, err, c.SessionID(), id)
				}
			} else {
				time.Sleep(time.Minute)
				assert.NotEqual(t, zk.StateHasSession, c.State(), "loss %d: a client that has seen a greater zxid has a session", loss)
			}
			z := e.Leader().Zxid()
			if want.epoch > 0 {
				assert.Equal(t, want.epoch, z>>32, "loss %d", loss)
			} else {
				assert.Greater(t, z, before, "loss %d", loss)
			}
			for i := range e.Len() {
				c2, _ := connectFrom(t, e, i, 6*time.Second)
				assert.Equal(t, e.Server(i).Name(), c2.Server(), "loss %d: server %d does not accept clients", loss, i)
				_, err := c2.Create("/new", nil, 0, openACL)
				assert.False(t, err != nil && !errors.Is(err, zk.ErrNodeExists), "loss %d", loss)
				if data, _, err := c2.Get("/zookeeper/config"); len(data) == 0 || err != nil {
					t.Errorf("loss %d: /zookeeper/config contains %q, error %v", loss, data, err)
				}
			}
		})
	}
}

// TestEnsembleRestart_KeepsPorts checks that each server has the same port after a restart of the ensemble.
func TestEnsembleRestart_KeepsPorts(t *testing.T) {
	e := zktest.StartEnsemble(t, 3)
	addrs := e.Addrs()
	e.Server(0).Stop()
	e.Restart(zktest.LoseAll)
	for i, addr := range addrs {
		c, events, err := zk.Connect([]string{addr}, 10*time.Second, zk.WithLogInfo(false))
		require.NoError(t, err)
		defer c.Close()
		waitState(t, events, zk.StateHasSession)
		if i == 0 {
			mustCreate(t, c, "/a", "", 0)
		}
	}
}
