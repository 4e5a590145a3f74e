package zktest_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/wire"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestWithoutReattach_StartsNewSessionAtReconnect checks that a client receives a new session when it reconnects,
// and that its previous session and its ephemeral znode remain until the session timeout.
func TestWithoutReattach_StartsNewSessionAtReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t, zktest.WithoutReattach())
		c, events := connect(t, s, 6*time.Second)
		mustCreate(t, c, "/e", "", zk.FlagEphemeral)
		old := c.SessionID()
		s.DropConnections()
		waitState(t, events, zk.StateConnected)
		assert.Equal(t, zk.StateHasSession, (<-events).State, "unexpected event")
		assert.NotEqual(t, old, c.SessionID())
		assert.Len(t, s.Sessions(), 2)
		if ok, stat, err := c.Exists("/e"); !ok || err != nil || stat.EphemeralOwner != old {
			t.Errorf("Exists of the ephemeral znode returns %v, %v", ok, err)
		}
		time.Sleep(7 * time.Second)
		if ok, _, err := c.Exists("/e"); ok || err != nil || len(s.Sessions()) != 1 {
			t.Errorf("after the timeout of the old session, Exists returns %v, %v, and %d sessions exist", ok, err, len(s.Sessions()))
		}
	})
}

// TestWithoutOps_ClosesConnection checks that the server closes the connection instead of answering an operation
// that WithoutOps disables.
func TestWithoutOps_ClosesConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t, zktest.WithoutOps(zktest.OpSetWatches, zktest.OpCreateContainer))
		c, _ := connect(t, s, 6*time.Second)
		_, err := c.CreateContainer("/box", nil, zk.FlagContainer, openACL)
		assert.ErrorIs(t, err, zk.ErrConnectionClosed, "createContainer")
		raw := newRawClient(t, s, false)
		raw.send(t, func(e *wire.Encoder) {
			e.Int(int32(wire.Multi))
			for _, op := range []struct {
				wire.Op
				done bool
			}{{wire.CreateContainer, false}, {-1, true}} {
				e.Int(int32(op.Op))
				e.Bool(op.done)
				e.Int(-1)
				if !op.done {
					e.String("/box")
					e.Buffer(nil)
					e.ACLs([]wire.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}})
					e.Int(zk.FlagContainer)
				}
			}
		})
		assert.NotNil(t, raw.discardReply(), "a multi with createContainer is answered")
		log := s.Log()
		assert.True(t, log.Count(zktest.OpCreateContainer) == 1 && s.Tree() == "/\n", "log\n%v\ntree\n%s", log, s.Tree())
		mustCreate(t, c, "/a", "", 0)
		_, _, _, err = c.GetW("/a")
		require.NoError(t, err)
		s.ResetLog()
		s.DropConnections()
		time.Sleep(30 * time.Second)
		n := s.Log().Count(zktest.OpSetWatches)
		assert.True(t, n >= 10 && len(s.Watches()) == 0, "%d setWatches requests, watches %v", n, s.Watches())
	})
}

// TestWithContainerOwner_SetsOwnerInStat checks that the Stat of a container has the owner that the option sets.
func TestWithContainerOwner_SetsOwnerInStat(t *testing.T) {
	for _, owner := range []int64{0, math.MinInt64} {
		synctest.Test(t, func(t *testing.T) {
			s := zktest.Start(t, zktest.WithContainerOwner(owner))
			c, _ := connect(t, s, 6*time.Second)
			_, err := c.CreateContainer("/box", nil, zk.FlagContainer, openACL)
			require.NoError(t, err)
			mustCreate(t, c, "/box/a", "", zk.FlagEphemeral)
			_, stat, err := c.Exists("/box")
			assert.True(t, err == nil && stat.EphemeralOwner == owner && stat.NumChildren == 1, "%+v", stat)
			if err := c.Delete("/box/a", -1); err != nil || s.Sweep() != 1 {
				t.Errorf("the container was not deleted: %v", err)
			}
		})
	}
}
