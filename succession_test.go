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

// CURATOR-504, CURATOR-644, FLINK-28078: if its predecessor does not exist, a candidate creates
// its znode again, which makes the next candidate do the same, without end.
func TestTrap39_NoCreateStorm(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		const count = 30
		conns := []*zk.Conn{h.connect(), h.connect()}
		var all []*candidate
		for i := range count {
			all = append(all, h.join(conns[i%4/2], leaderelection.WithRejoin()))
		}
		// Every second znode is deleted, most of them while the connections are down.
		for i := 0; i < count; i += 2 {
			if i == count/3 {
				for _, conn := range conns {
					h.disconnect(conn)
				}
			}
			h.remove(all[i].ID())
		}
		h.advance(shortTime)
		h.reconnect()
		var remaining []string
		for i, c := range all {
			switch {
			case i%2 == 0:
				require.ErrorIs(h, c.requireOver(), leaderelection.ErrDeleted)
				continue
			case i == 1:
				c.requireLeads()
			default:
				c.requireFollows(all[i-2])
			}
			remaining = append(remaining, c.ID())
		}
		h.requireIDs(remaining...)
		require.Len(h, h.createdIDs(), count, "a candidate has created a second znode")
	})
}

// CURATOR-696, CURATOR-604: a candidate becomes the leader although its znode belongs to its
// previous session and will be deleted.
func TestTrap11_ZnodeOfEarlierSession(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		leader, c := h.join(h.connect()), h.join(h.connect())
		c.requireFollows(leader)
		h.orphanZnode(c)
		h.srv.Before(zktest.Match{Op: zktest.OpDelete, Path: c.ID(), Nth: 1}, zktest.Fail(zk.ErrNoAuth))
		leader.resign()
		h.reconnect()
		h.advance(timeout)
		require.ErrorIs(h, c.requireOver(), leaderelection.ErrSessionExpired)
		c.requireNeverLed()
		h.requireIDs(c.ID())
	})
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

// CURATOR-696: both znodes belong to one session, whose expiry deletes them one after the other.
func TestTrap11_SessionOfLeaderAndFollower(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		conn := h.connect()
		first := h.join(conn)
		var led atomic.Bool
		second := h.join(conn, onStatus(func(s leaderelection.Status) {
			led.Store(led.Load() || s.Role == leaderelection.Leader)
		}))
		h.advance(timeout) // it has a lease, and could become the leader without a request
		h.expire(conn)
		h.advance(shortTime)
		require.False(h, led.Load())
		for _, c := range []*candidate{first, second} {
			require.ErrorIs(h, c.requireOver(), leaderelection.ErrSessionExpired)
		}
		h.requireIDs()
	})
}
