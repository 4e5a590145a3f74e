package queue_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// requireUnconfirmed requires that leave returns ErrUnconfirmed, within the time limit.
func (c *client) requireUnconfirmed() {
	c.h.Helper()
	bubble.RequireDuration(c.h, limit.Confirm, func() { require.ErrorIs(c.h, c.leave(), leaderelection.ErrUnconfirmed) })
}

// TestContender_DeletesZnodeIfDeleteReplyIsLost checks that the znode of a contender does not remain if the
// connection has failed during its delete: the session continues, so the znode would block the other contenders
// (CURATOR-202, CURATOR-678, kazoo #732).
// Scenario 5 of docs/traps.md.
func TestContender_DeletesZnodeIfDeleteReplyIsLost(t *testing.T) {
	forEachLoss(t, bubble.ConnectionLost, testDeleteReplyLost)
}

// TestContender_DeletesZnodeIfSessionMovesDuringDelete checks that a contender does not take the reply "session
// moved" for the outcome of its delete (ZOOKEEPER-2886).
// Scenario 10 of docs/traps.md.
func TestContender_DeletesZnodeIfSessionMovesDuringDelete(t *testing.T) {
	forEachLoss(t, bubble.SessionMoved, testDeleteReplyLost)
}

func testDeleteReplyLost(h *harness, l bubble.Fault) {
	c, next := h.joinNew(), h.joinNew()
	g, session := c.requireTurn(), c.conn.SessionID()
	lost := l.Set(h.srv, zktest.Match{Op: zktest.OpDelete, Path: contenderPattern, Nth: 1})
	left := bubble.Async(c.leave)
	h.advance(0)
	require.ErrorIs(h, g.Err(), h.left)
	h.advance(timeout)
	h.requireRan(lost)
	if err := <-left; !l.Silent {
		require.NoError(h, err)
	}
	require.NoError(h, c.leave(), "the servers have not confirmed the removal")
	next.requireSoleHolder()
	require.Equal(h, session, c.conn.SessionID(), "the session has expired")
}

// TestWaiter_DeletesZnodeIfDeleteReplyIsLost checks that the znode of a contender that gives up while it waits does
// not remain if the reply to the delete is lost (CURATOR-202).
// Scenario 5 of docs/traps.md.
func TestWaiter_DeletesZnodeIfDeleteReplyIsLost(t *testing.T) {
	forEachLoss(t, bubble.LostReplies, func(h *harness, l bubble.Fault) {
		first, c := h.joinNew(), h.joinNew()
		last := h.joinNew()
		g, session := first.requireTurn(), c.conn.SessionID()
		lost := l.Set(h.srv, zktest.Match{Op: zktest.OpDelete, Session: session, Path: contenderPattern, Nth: 1})
		c.giveUp()
		h.advance(timeout)
		h.requireRan(lost)
		require.Len(h, h.contenders(), 2)
		last.requireWaits()
		require.Equal(h, session, c.conn.SessionID(), "the session has expired")
		require.NoError(h, g.Err())
		first.requireLeaves()
		last.requireSoleHolder()
	})
}

// TestContender_DeletesZnodeAfterLossOfAllPackets checks that the znode of a contender does not remain if the
// network discards all packets of the client for a while, beginning before the delete (CURATOR-202).
// Scenario 5 of docs/traps.md.
func TestContender_DeletesZnodeAfterLossOfAllPackets(t *testing.T) {
	for name, heal := range map[string]time.Duration{
		"until the client dials again":     0,
		"until the session has ended":      2*timeout - limit.Confirm,
		"until the lease and more is over": timeout / 2,
	} {
		subtestForEachKind(t, name, all, 1, func(h *harness) {
			c, next := h.joinNew(), h.joinNew()
			h.isolate(c.conn)
			c.requireUnconfirmed()
			require.Len(h, h.contenders(), 2)
			next.requireWaits()
			h.advance(heal)
			h.srv.Refuse(false)
			h.advance(timeout)
			require.NoError(h, c.leave(), "the servers have not confirmed the removal")
			next.requireSoleHolder()
		})
	}
}

// TestContender_RemovesZnodeAfterContextIsDone checks that a contender that leaves because its context is done
// deletes its znode, although a request with this context would not be sent (vitess #15756, etcd #22123).
// Scenario 6 of docs/traps.md.
func TestContender_RemovesZnodeAfterContextIsDone(t *testing.T) {
	for name, spoil := range map[string]func(h *harness, conn *zk.Conn) (repair func()){
		"connected": func(*harness, *zk.Conn) func() { return func() {} },
		"disconnected": func(h *harness, conn *zk.Conn) func() {
			h.disconnect(conn)
			return h.reconnect
		},
		"silent": func(h *harness, conn *zk.Conn) func() {
			h.srv.Blackhole(zktest.BothWays, conn.SessionID())
			return func() { h.srv.Heal(conn.SessionID()) }
		},
	} {
		subtestForEachKind(t, "waiting, "+name, all, 1, func(h *harness) {
			first, c := h.joinNew(), h.joinNew()
			session, line := c.conn.SessionID(), h.contenders()
			repair := spoil(h, c.conn)
			c.giveUp()
			h.advance(limit.Confirm)
			repair()
			h.advance(moment)
			h.requireContenders(line[0])
			require.Equal(h, session, c.conn.SessionID(), "the session has expired")
			first.requireTurn()
		})
		subtestForEachKind(t, "leaving, "+name, all, 1, func(h *harness) {
			c := h.joinNew()
			g, session := c.requireTurn(), c.conn.SessionID()
			repair := spoil(h, c.conn)
			if name == "connected" {
				c.requireLeaves()
			} else {
				c.requireUnconfirmed()
			}
			require.ErrorIs(h, g.Err(), h.left)
			repair()
			h.advance(moment)
			h.requireContenders()
			require.NoError(h, c.leave())
			require.Equal(h, session, c.conn.SessionID(), "the session has expired")
		})
	}
}

// TestContender_SendsDeleteOncePerConnection checks that a contender sends its delete once on each connection, and
// that nested loops of retries do not multiply the time limit of the delete (CURATOR-559).
// Scenario 9 of docs/traps.md.
func TestContender_SendsDeleteOncePerConnection(t *testing.T) {
	forEachKind(t, all, 1, func(h *harness) {
		c, next := h.joinNew(), h.joinNew()
		lost := h.srv.Before(zktest.Match{Op: zktest.OpDelete, Path: contenderPattern}, zktest.Cut)
		h.srv.ResetLog()
		c.requireUnconfirmed()
		h.advance(time.Minute)
		log := h.srv.Log().Session(c.conn.SessionID())
		require.InDelta(h, log.Count(zktest.OpConnect), log.Count(zktest.OpDelete), 1)
		require.Greater(h, log.Count(zktest.OpDelete), 30, "the delete is not retried")
		lost.Remove()
		h.advance(2 * time.Second)
		require.NoError(h, c.leave())
		next.requireTurn()
	})
}

// TestContender_KeepsTurnDespiteEarlierRemoval checks that the delayed deletion of the znode of an earlier
// contender does not end the turn of a later contender on the same connection (etcd #22082, #22123).
// Scenario 44 of docs/traps.md.
func TestContender_KeepsTurnDespiteEarlierRemoval(t *testing.T) {
	forEachKind(t, all, 1, func(h *harness) {
		// The delete of the first contender is pending while the second contender joins on the same connection. The
		// first contender repeats the delete during the turn of the second contender.
		conn := h.connect()
		old := h.join(conn)
		g, znode := old.requireTurn(), h.contenders()[0]
		lost := h.srv.Before(zktest.Match{Op: zktest.OpDelete, Path: contenderPattern, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			h.srv.Refuse(true)
			return zktest.Cut(q)
		})
		old.requireUnconfirmed()
		h.requireRan(lost)
		h.remove(znode)
		h.srv.Refuse(false)
		h.advance(time.Second)
		c := h.join(conn)
		h.advance(time.Second + moment)
		again := c.requireTurn()
		for range 3 {
			require.NoError(h, old.leave())
		}
		_, err := g.Multi()
		require.ErrorIs(h, err, h.noTurn)
		h.advance(timeout)
		require.NoError(h, again.Err())
		c.requireSoleHolder()
	})
}

// TestContender_LeavesOnceWithConcurrentCalls checks that concurrent calls that make a contender leave do not leave
// a znode, and return no error (CURATOR-620, CURATOR-652, CURATOR-653).
// Scenario 38 of docs/traps.md.
func TestContender_LeavesOnceWithConcurrentCalls(t *testing.T) {
	for round := range 10 {
		forEachKind(t, all, 3, func(h *harness) {
			conn := h.connect()
			c := h.prepare(conn)
			c.start()
			h.drop(conn)
			h.advance(timeout)
			c.requireSoleHolder()
			var ended []<-chan error
			for i := range 10 {
				if i == round {
					h.drop(conn)
				}
				ended = append(ended, bubble.Async(c.leave))
				go func() { _, _ = c.newest().Multi() }()
			}
			h.advance(timeout)
			for _, e := range ended {
				require.NoError(h, <-e)
			}
			h.requireContenders()
			require.Equal(h, zk.StateHasSession, conn.State())
		})
	}
}
