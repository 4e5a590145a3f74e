package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestContender_IgnoresZnodeOfEarlierSession checks that a contender does not have its turn while its znode belongs
// to its previous session, whose end will delete the znode. A server that lags behind can still show such a znode
// (CURATOR-696, CURATOR-604).
// Scenario 11 of docs/traps.md.
func TestContender_IgnoresZnodeOfEarlierSession(t *testing.T) {
	forEachKind(t, all, 3, func(h *harness) {
		first, c := h.joinNew(), h.joinNew()
		own := h.contenders()[1]
		h.disconnect(c.conn)
		h.expire(c.conn)
		h.create(own)
		// Reject the contender's attempt to delete this znode, so that the znode remains.
		h.srv.Before(zktest.Match{Op: zktest.OpDelete, Path: own, Nth: 1}, zktest.Fail(zk.ErrNoAuth))
		first.requireLeaves()
		h.reconnect()
		h.advance(timeout)
		c.requireSessionLost()
		require.NotNil(h, h.statOf(own))
		if !h.resumes {
			h.remove(own)
			h.advance(0)
			c.requireSoleHolder()
		}
	})
}

// TestContender_GetsNoTurnInExpiredSession checks that a contender does not have its turn if the end of a session
// has deleted the znode of its predecessor, and the znode of the contender belongs to the same session
// (CURATOR-696).
// Scenario 11 of docs/traps.md.
func TestContender_GetsNoTurnInExpiredSession(t *testing.T) {
	forEachKind(t, all, 3, func(h *harness) {
		conn := h.connect()
		first, second := h.join(conn), h.join(conn)
		other := h.joinNew()
		first.requireTurn()
		h.advance(timeout) // the second contender now has a lease, and could have its turn without a request
		h.expire(conn)
		h.advance(timeout)
		require.Error(h, first.newest().Err())
		second.requireSessionLost()
		other.requireTurn()
	})
}

// requireSessionLost requires that a contender whose session has ended while it was waiting has left, or, if the
// contender is a call that acquires a lock, has joined again.
func (c *client) requireSessionLost() {
	c.h.Helper()
	if c.h.resumes {
		require.Nil(c.h, c.newest())
		c.requireLeftBecause(leaderelection.ErrSessionExpired)
		return
	}
	c.requireWaits()
	require.Len(c.h, bubble.Session(c.h, c.h.ensemble, c.conn).Ephemerals, 1)
}

// TestLease_StartsAtLastCheck checks that a lease expires before the session, because it starts at the last check
// and not when the client notices that the connection is broken (CURATOR-460, TN14).
// Scenario 12 of docs/traps.md.
func TestLease_StartsAtLastCheck(t *testing.T) {
	for name, fault := range map[string]func(h *harness, conn *zk.Conn){
		"packets are lost": (*harness).isolate,
		"the connection breaks": func(h *harness, conn *zk.Conn) {
			h.srv.Refuse(true)
			h.drop(conn)
		},
	} {
		subtestForEachKind(t, name, all, 1, func(h *harness) {
			c, next := h.joinNew(), h.joinNew()
			h.advance(2*timeout + moment)
			fault(h, c.conn)
			c.requireExpires()
			h.advance(c.session() - 1)
			next.requireWaits()
			h.advance(1)
			next.requireTurn()
			h.healNetwork()
			h.advance(timeout)
			c.requireExpired()
		})
	}
}

// requireExpired requires that a contender has left after its lease and its session have expired.
func (c *client) requireExpired() {
	c.h.Helper()
	if c.h.resumes {
		c.requireLeftBecause(leaderelection.ErrSessionExpired)
	} else {
		c.requireLeftBecause(leaderelection.ErrLeaseExpired)
	}
}

// TestHolder_LosesTurnAtPartitionedServer checks that the holder loses its turn when the other servers expire its
// session, although the server that is cut off from them still answers reads (CURATOR-444).
// Scenario 13 of docs/traps.md.
func TestHolder_LosesTurnAtPartitionedServer(t *testing.T) {
	forEachKind(t, all, 3, func(h *harness) {
		c, next := h.join(h.connectTo(0)), h.join(h.connectTo(1))
		reader, znode := h.connectTo(0), h.contenders()[0]
		g := c.requireTurn()
		h.advance(2*timeout + moment)
		h.srv.Partition()
		bubble.EachServer(h.ensemble, func(s *zktest.Server) { s.Refuse(true) })
		c.requireExpires()
		h.advance(c.session() - 1)
		next.requireWaits()
		h.advance(1)
		next.requireTurn()
		found, _, err := reader.Exists(znode)
		require.NoError(h, err)
		require.True(h, found, "the partitioned server has deleted the znode")
		_, err = g.Multi()
		require.ErrorIs(h, err, h.noTurn)
		h.healNetwork()
		h.advance(timeout)
		c.requireExpired()
		next.requireTurn()
	})
}

// TestHolder_KeepsTurnIfSessionMovesDuringCheck checks that the reply "session moved" to a check neither ends the
// turn of the holder nor renews the lease (ZOOKEEPER-2886).
// Scenario 10 of docs/traps.md.
func TestHolder_KeepsTurnIfSessionMovesDuringCheck(t *testing.T) {
	forEachLoss(t, bubble.SessionMoved, func(h *harness, l bubble.Fault) {
		c, next := h.joinNew(), h.joinNew()
		g, znode := c.requireTurn(), h.contenders()[0]
		for range 5 {
			h.advance(timeout + moment)
			one := l.Set(h.srv, zktest.Match{Op: zktest.OpMulti, Path: znode, Nth: 1})
			h.advance(timeout / 4)
			h.requireRan(one)
		}
		require.NoError(h, g.Err())
		all := l.Set(h.srv, zktest.Match{Op: zktest.OpMulti, Path: znode})
		c.requireExpires()
		h.advance(timeout)
		all.Remove()
		h.advance(timeout)
		if h.resumes {
			require.Equal(h, g.Token(), c.requireTurn().Token())
			next.requireWaits()
		} else {
			next.requireTurn()
		}
	})
}

// TestDone_IsClosedWhenTurnEnds checks that Done is closed when the holder loses its turn, for each reason
// (CURATOR-206, kazoo #2, go-zookeeper #190).
// Scenario 14 of docs/traps.md.
func TestDone_IsClosedWhenTurnEnds(t *testing.T) {
	for name, end := range map[string]struct {
		do     func(h *harness, c *client)
		reason error // the error of the grant; nil means the error after leave
	}{
		"left":              {func(_ *harness, c *client) { c.requireLeaves() }, nil},
		"znode deleted":     {func(h *harness, _ *client) { h.remove(h.contenders()[0]) }, leaderelection.ErrDeleted},
		"connection closed": {func(_ *harness, c *client) { c.conn.Close() }, leaderelection.ErrDeleted},
		"session expired": {func(h *harness, c *client) {
			h.disconnect(c.conn)
			h.expire(c.conn)
			bubble.EachServer(h.ensemble, func(s *zktest.Server) { s.Refuse(false) })
			h.advance(0)
		}, leaderelection.ErrSessionExpired},
	} {
		subtestForEachKind(t, name, all, 1, func(h *harness) {
			c, next := h.joinNew(), h.joinNew()
			g := c.requireTurn()
			done := bubble.Async(func() time.Time { <-g.Done(); return time.Now() })
			h.advance(timeout / 3)
			begin := time.Now()
			h.allowOverlap = name == "session expired" // the client does not know that its session has expired
			end.do(h, c)
			h.advance(time.Second + 2*moment)
			require.WithinDuration(h, begin, <-done, time.Second+moment)
			reason := end.reason
			if reason == nil {
				reason = h.left
			}
			require.ErrorIs(h, g.Err(), reason)
			_, err := g.Multi()
			require.ErrorIs(h, err, h.noTurn)
			if ctx, ok := g.(interface{ Context() context.Context }); ok {
				require.Equal(h, g.Err(), context.Cause(ctx.Context()))
			}
			next.requireTurn()
		})
	}
}

// TestHolder_CannotWriteAfterNextTurnBegins checks that a holder whose process was suspended cannot write after the
// turn of the next holder has begun (TN10, Kleppmann 2016, Jepsen etcd 3.4.3). The lease in this test is far too
// long, which has the same effect as a suspension right after the holder has compared the lease with the clock.
// Scenario 16 of docs/traps.md.
func TestHolder_CannotWriteAfterNextTurnBegins(t *testing.T) {
	forEachKind(t, all, 1, func(h *harness) {
		h.allowOverlap = true
		h.create("/register")
		conn := h.connect()
		connection.RecordOf(conn).Push(connection.Event{Timeout: time.Minute})
		c := h.prepareFor(conn, time.Minute)
		c.start()
		h.advance(0)
		next := h.joinNew()
		old := c.requireTurn()
		h.advance(timeout)
		h.isolate(conn)
		h.advance(2 * timeout)
		g := next.requireTurn()
		require.NoError(h, old.Err(), "the lease of the old holder has expired")
		require.Greater(h, g.Token(), old.Token(), "a system that compares tokens would accept the old holder")
		late := bubble.Async(func() error { return writeRegister(old, "too late") })
		h.advance(0)
		require.NoError(h, writeRegister(g, "new"))
		h.healNetwork()
		h.advance(timeout)
		require.ErrorIs(h, <-late, leaderelection.ErrUnconfirmed)
		require.ErrorIs(h, writeRegister(old, "too late"), h.noTurn)
		data, stat, err := h.operator.Get("/register")
		require.NoError(h, err)
		require.Equal(h, "new", string(data))
		require.EqualValues(h, 1, stat.Version)
	})
}

// writeRegister writes the register in a transaction that the servers apply only during the turn of g.
func writeRegister(g grant, data string) error {
	_, err := g.Multi(&zk.SetDataRequest{Path: "/register", Data: []byte(data), Version: -1})
	return err
}

// TestHolder_WriteInFlightFailsAfterNextTurnBegins checks that the server does not apply a write of the previous
// holder that is in flight when the next turn begins (Kleppmann 2016).
// Scenario 16 of docs/traps.md.
func TestHolder_WriteInFlightFailsAfterNextTurnBegins(t *testing.T) {
	forEachKind(t, all, 1, func(h *harness) {
		h.allowOverlap = true
		h.create("/register")
		c, next := h.joinNew(), h.joinNew()
		old := c.requireTurn()
		h.srv.Blackhole(zktest.ToServer, c.conn.SessionID())
		late := bubble.Async(func() error { return writeRegister(old, "too late") })
		h.advance(0)
		h.remove(h.contenders()[0])
		h.advance(moment)
		require.Greater(h, next.requireTurn().Token(), old.Token())
		h.srv.Heal(c.conn.SessionID())
		require.ErrorIs(h, <-late, h.noTurn)
		require.Zero(h, h.statOf("/register").Version)
	})
}

// TestContender_NoticesUnreportedNewSession checks that a contender notices that the client library continues in a
// new session, even if the library reports no expiry (ClickHouse #116690).
// Scenario 18 of docs/traps.md.
func TestContender_NoticesUnreportedNewSession(t *testing.T) {
	subtestForEachKind(t, "during its turn", all, 3, func(h *harness) {
		c := h.joinNew()
		old := c.conn.SessionID()
		h.expire(c.conn)
		h.advance(0) // with three servers the client reconnects immediately
		require.Equal(h, zk.StateHasSession, c.conn.State())
		require.NotEqual(h, old, c.conn.SessionID())
		require.Error(h, c.newest().Err())
		h.requireContenders()
	})
	subtestForEachKind(t, "waiting", all, 3, func(h *harness) {
		first, c := h.joinNew(), h.joinNew()
		h.expire(c.conn)
		h.advance(moment)
		c.requireSessionLost()
		first.requireTurn()
	})
	t.Run("joining", func(t *testing.T) {
		// The client library queues the create in one session and sends it in the next session.
		forEachKind(t, all, 3, func(h *harness) {
			conn := h.connect()
			c, old := h.prepare(conn), conn.SessionID()
			h.disconnect(conn)
			h.expire(conn)
			c.start()
			h.advance(moment)
			h.reconnect()
			h.advance(timeout)
			require.NotEqual(h, old, conn.SessionID())
			c.requireSoleHolder()
			c.requireLeaves()
		})
	})
}

// TestContender_EndsInAnyState checks that a contender ends, and does not wait forever, if it leaves or if its
// connection, its context or its election ends, in any state of the contender and of its connection (kazoo PR 170,
// #116, #482).
// Scenario 22 of docs/traps.md.
func TestContender_EndsInAnyState(t *testing.T) {
	for state, prepare := range map[string]func(h *harness, c *client){
		"during its turn": func(*harness, *client) {},
		"waiting":         func(h *harness, _ *client) { h.createForeignContender() },
		"disconnected":    func(h *harness, _ *client) { h.createForeignContender() },
		"without a lease": func(*harness, *client) {},
		"creating": func(h *harness, _ *client) {
			hook, open := bubble.Hold(h)
			h.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: contenderPattern, Nth: 1}, hook)
			time.AfterFunc(5*timeout, open)
		},
		"joining without a connection": func(h *harness, c *client) { h.disconnect(c.conn) },
	} {
		for name, end := range map[string]func(c *client){
			"closed":             func(c *client) { c.conn.Close() },
			"left":               func(c *client) { _ = c.leave() },
			"context is done":    func(c *client) { c.giveUp() },
			"election was ended": func(c *client) { _ = c.endElection() },
		} {
			kinds := all
			switch name {
			case "context is done", "election was ended":
				kinds = []kind{election, prefix}
			}
			subtestForEachKind(t, state+", "+name, kinds, 1, func(h *harness) {
				h.allowWatches = true
				c := h.prepare(h.connect())
				prepare(h, c)
				c.start()
				h.advance(moment)
				switch state {
				case "disconnected":
					h.disconnect(c.conn)
				case "without a lease":
					h.isolate(c.conn)
					h.advance(timeout * 5 / 8)
					require.Error(h, c.newest().Err())
				}
				ended := bubble.Async(func() struct{} { end(c); return struct{}{} })
				h.advance(2*time.Second + moment)
				require.Len(h, ended, 1, "the call has not returned")
				c.mu.Lock()
				defer c.mu.Unlock()
				require.True(h, c.returned)
				switch {
				case c.grant != nil && !h.resumes:
					require.Error(h, c.grant.Err())
				case name == "closed":
					require.ErrorIs(h, c.err, leaderelection.ErrConnClosed)
				case name == "election was ended":
					require.ErrorIs(h, c.err, leaderelection.ErrElectionOver)
				case h.resumes:
					require.NoError(h, c.err)
				}
				if c.grant != nil {
					_, err := c.grant.Multi()
					require.ErrorIs(h, err, h.noTurn)
				}
			})
		}
	}
}

// TestContenders_LeaveWhenConnectionIsClosed checks that all contenders on a connection leave when the connection
// is closed, and that none of them has its turn because the server still reports the deletion of the predecessor
// (kazoo #482).
// Scenario 22 of docs/traps.md.
func TestContenders_LeaveWhenConnectionIsClosed(t *testing.T) {
	for name, leaves := range map[string]bool{"during its turn": false, "leaving": true} {
		subtestForEachKind(t, name, all, 1, func(h *harness) {
			conn := h.connect()
			var line []*client
			for range 4 {
				line = append(line, h.join(conn))
			}
			last := h.joinNew()
			h.advance(timeout + moment) // an instant at which no check is sent
			if leaves {
				h.srv.Before(zktest.Match{Op: zktest.OpDelete, Path: h.contenders()[0]}, zktest.Cut)
				go line[0].leave()
				h.advance(0)
			}
			conn.Close()
			h.advance(timeout)
			require.Error(h, line[0].newest().Err())
			for _, c := range line[1:] {
				require.Nil(h, c.newest())
				c.requireLeftBecause(leaderelection.ErrConnClosed)
			}
			h.advance(timeout)
			last.requireSoleHolder()
		})
	}
}
