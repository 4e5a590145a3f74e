package leaderelection_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// packetGap is the pause between the packets that a client receives in these tests.
const packetGap = time.Millisecond

// deleteTogether deletes the znodes of two candidates in one transaction, the second one first, as
// DeleteElection does.
func (h *harness) deleteTogether(second, first *candidate) {
	_, err := h.operator.Multi(
		&zk.DeleteRequest{Path: second.ID(), Version: -1},
		&zk.DeleteRequest{Path: first.ID(), Version: -1},
	)
	assert.NoError(h, err)
}

// TestSuccession_OwnZnodeDeletedWhileDisconnected fails if a candidate becomes the leader because
// it is notified, after a reconnect, that its predecessor was deleted, before it is notified that
// its znode was deleted. It must list again after a reconnect.
func TestSuccession_OwnZnodeDeletedWhileDisconnected(t *testing.T) {
	withServers(t, 2, func(h *harness) {
		conn, pause := h.connectSlowly()
		leader, second := h.join(h.connect()), h.join(conn)
		second.requireFollows(leader)
		h.advance(time.Second + 60*time.Millisecond) // between two polls of the connection's monitor
		pause.set(packetGap)
		h.srv.Before(zktest.Match{Op: zktest.OpConnect, Session: conn.SessionID(), Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			h.deleteTogether(second, leader)
			return zktest.Pass(q)
		})
		h.srv.DropConnections(conn.SessionID())
		h.advance(100 * packetGap)
		require.ErrorIs(h, second.requireOver(), leaderelection.ErrDeleted)
		require.NotContains(h, second.roles(), leaderelection.Leader)
		require.Equal(h, []string{leader.ID(), second.ID()}, h.deletionsDelivered(conn.SessionID()), "the test does not test this")
	})
}

// deletionsDelivered returns the paths of the deleted znodes of which a session was notified, in
// order.
func (h *harness) deletionsDelivered(session int64) (paths []string) {
	for _, e := range h.requests(zktest.OpNotification, session) {
		if e.Event == zk.EventNodeDeleted {
			paths = append(paths, e.Path)
		}
	}
	return paths
}

// TestSuccession_PredecessorOfSameSession fails if a candidate becomes the leader because its
// predecessor was deleted, although both belong to a session that has ended. The server deletes
// the znodes in the order of the queue.
func TestSuccession_PredecessorOfSameSession(t *testing.T) {
	for name, end := range map[string]struct {
		do        func(h *harness, conn *zk.Conn)
		packetGap time.Duration
	}{
		"expires":       {func(h *harness, conn *zk.Conn) { assert.NoError(h, h.srv.ExpireSession(conn.SessionID())) }, packetGap},
		"expires, slow": {func(h *harness, conn *zk.Conn) { assert.NoError(h, h.srv.ExpireSession(conn.SessionID())) }, 20 * packetGap},
		"is closed":     {func(_ *harness, conn *zk.Conn) { conn.Close() }, packetGap},
	} {
		t.Run(name, func(t *testing.T) {
			withServers(t, 1, func(h *harness) {
				conn, pause := h.connectSlowly()
				session := conn.SessionID()
				leader, second := h.join(conn), h.join(conn)
				third := h.join(h.connect())
				h.advance(time.Second)
				pause.set(end.packetGap)
				end.do(h, conn)
				h.advance(timeout)
				require.Error(h, leader.requireOver())
				require.Error(h, second.requireOver())
				require.NotContains(h, second.roles(), leaderelection.Leader)
				third.requireLeads()
				require.Equal(h, leader.ID(), h.deletionsDelivered(session)[0], "the test does not test this")
			})
		})
	}
}

// TestSuccession_OwnZnodeDeletedWithPredecessor fails if a candidate becomes the leader although
// it was notified that its znode was deleted as well as its predecessor.
func TestSuccession_OwnZnodeDeletedWithPredecessor(t *testing.T) {
	for range 20 { // the order in which the candidate receives the notifications is random
		withServers(t, 1, func(h *harness) {
			hold, release := h.hold()
			var led atomic.Bool
			leader := h.join(h.connect())
			second := h.join(h.connect(), onStatus(func(s leaderelection.Status) {
				hold(nil)
				led.Store(led.Load() || s.Role == leaderelection.Leader)
			}))
			require.NotEmpty(h, second.ID())
			require.Empty(h, second.received(), "it is not blocked")
			h.deleteTogether(second, leader)
			h.advance(0)
			release()
			h.advance(20 * time.Millisecond)
			require.ErrorIs(h, second.requireOver(), leaderelection.ErrDeleted)
			require.False(h, led.Load(), "it was the leader")
		})
	}
}

// CURATOR-696: the candidate's znode is deleted together with its predecessor, and the candidate
// is notified of both at the same time.
func TestTrap11_OwnZnodeDeletedWithLeader(t *testing.T) {
	for range 20 { // the order in which the candidate receives the notifications is random
		withServers(t, 1, func(h *harness) {
			ahead, second := h.createContender(), h.createContender()
			hold, release := h.hold()
			var busy, led atomic.Bool
			c := h.join(h.connect(), onStatus(func(s leaderelection.Status) {
				led.Store(led.Load() || s.Role == leaderelection.Leader)
				if busy.Load() {
					hold(nil)
				}
			}))
			busy.Store(true) // it is blocked while it publishes the next status
			h.remove(second)
			h.advance(timeout) // it has a lease, and could become the leader without a request
			_, err := h.operator.Multi(
				&zk.DeleteRequest{Path: c.ID(), Version: -1},
				&zk.DeleteRequest{Path: ahead, Version: -1},
			)
			require.NoError(h, err)
			h.advance(0)
			release()
			h.advance(shortTime)
			require.ErrorIs(h, c.requireOver(), leaderelection.ErrDeleted)
			require.False(h, led.Load())
			require.Equal(h, ahead, c.received()[1].NowFollowing)
		})
	}
}
