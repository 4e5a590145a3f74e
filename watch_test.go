package leaderelection_test

import (
	"context"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestWatch_SetWatchesFails_SameServer fails if a candidate misses that its predecessor has left while
// it was disconnected, because the client is connected to its only server again at once and the server
// rejects the request that sets the watches again.
func TestWatch_SetWatchesFails_SameServer(t *testing.T) {
	for how, fault := range map[string]zktest.HookFunc{"rejected": zktest.Fail(zktest.Code(-127)), "lost": zktest.Cut} {
		runWithServers(t, how, 1, func(h *harness) {
			leader, conn := h.join(h.connect()), h.dial()
			c := h.join(conn)
			c.requireFollows(leader)
			h.advance(timeout)
			met := h.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: conn.SessionID(), Nth: 1}, fault)
			h.whileDisconnected(conn, func() { assert.NoError(h, leader.Resign()) })
			<-met.Ran()
			h.advance(timeout / 2)
			c.requireLeads()
		})
	}
}

// CURATOR-391: a znode that is deleted and created again with the same version, while the client
// is disconnected, is taken for the old one.
func TestTrap28_RecreatedWhileDisconnected(t *testing.T) {
	// recreate deletes a znode and creates it again.
	recreate := func(h *harness, path string, flags int32) {
		h.remove(path)
		_, err := h.operator.Create(path, nil, flags, openACL)
		require.NoError(h, err)
	}
	runWithServers(t, "the election node", 3, func(h *harness) {
		c := h.join(h.connect())
		h.disconnect(c.conn)
		h.remove(c.ID())
		recreate(h, node, 0)
		h.advance(shortTime)
		h.reconnect()
		require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
		h.requireIDs()
	})
	runWithServers(t, "the predecessor", 3, func(h *harness) {
		ahead := h.createContender()
		c := h.join(h.connect())
		h.disconnect(c.conn)
		recreate(h, ahead, zk.FlagEphemeral)
		h.advance(shortTime)
		h.reconnect()
		c.requireNeverLed()
		require.Equal(h, ahead, c.newest().NowFollowing)
		h.remove(ahead)
		h.advance(0)
		c.requireLeads()
	})
	runWithServers(t, "the candidate's znode, by another client", 3, func(h *harness) {
		ahead := h.createContender()
		c := h.join(h.connect())
		h.disconnect(c.conn)
		recreate(h, c.ID(), zk.FlagEphemeral)
		h.remove(ahead)
		h.advance(shortTime)
		h.reconnect()
		require.Error(h, c.requireOver())
		c.requireNeverLed()
	})
	runWithServers(t, "the leader, for an observer", 3, func(h *harness) {
		ahead := h.createContender()
		ctx, cancel := context.WithCancel(h.Context())
		defer cancel()
		conn := h.connect()
		seen, err := leaderelection.Observe(ctx, conn, node)
		require.NoError(h, err)
		h.advance(0)
		require.Equal(h, h.stat(ahead).Czxid, receive(h, seen).Leader.Token)
		h.disconnect(conn)
		recreate(h, ahead, zk.FlagEphemeral)
		h.reconnect()
		require.Equal(h, h.stat(ahead).Czxid, receive(h, seen).Leader.Token)
	})
}
