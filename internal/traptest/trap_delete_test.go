package traptest

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// CURATOR-202, CURATOR-678, kazoo #732: the delete fails with the connection, the
// session lives on, and the own stale znode blocks everybody.
func TestTrap05_DeleteAnswerLost(t *testing.T) {
	forEachLoss(t, connectionLosses, 1, deleteAnswerLost)
}

// ZOOKEEPER-2886: so does a server that says that the session has moved.
func TestTrap10_SessionMovedDuringDelete(t *testing.T) {
	forEachLoss(t, movedSessions, 1, deleteAnswerLost)
}

func deleteAnswerLost(h *harness, l loss) {
	c, next := h.join(h.connect()), h.join(h.connect())
	grant, session := c.requireLeads(), c.conn.SessionID()
	lost := l.set(h.srv, zktest.Match{Op: zktest.OpDelete, Path: anyCandidate, Nth: 1})
	resignsUnheard(h, c, l)
	h.requireMet(lost)
	require.ErrorIs(h, grant.Err(), leaderelection.ErrResigned)
	next.requireLeads()
	h.requireIDs(next.ID())
	require.Equal(h, session, c.conn.SessionID(), "the session's end is no solution")
}

// resignsUnheard has a candidate resign while a request's outcome gets lost.
func resignsUnheard(h *harness, c *candidate, l loss) {
	h.Helper()
	if l.silent {
		h.requireDuration(confirmLimit, func() { require.ErrorIs(h, c.Resign(), leaderelection.ErrUnconfirmed) })
	} else {
		require.NoError(h, c.Resign())
	}
	h.advance(0)
	require.NoError(h, c.requireOver())
	h.advance(timeout)
	require.NoError(h, c.Resign(), "now it is confirmed")
}

// The same for a follower.
func TestTrap05_DeleteAnswerLostByFollower(t *testing.T) {
	forEachLoss(t, allLosses, 1, func(h *harness, l loss) {
		leader, c := h.join(h.connect()), h.join(h.connect())
		last := h.join(h.connect())
		grant, session := leader.requireLeads(), c.conn.SessionID()
		lost := l.set(h.srv, zktest.Match{Op: zktest.OpDelete, Session: session, Path: anyCandidate, Nth: 1})
		resignsUnheard(h, c, l)
		h.requireMet(lost)
		last.requireFollows(leader)
		h.requireIDs(leader.ID(), last.ID())
		require.Equal(h, session, c.conn.SessionID(), "the session's end is no solution")
		require.NoError(h, grant.Err())
		require.Len(h, leader.received(), 1)
	})
}

// CURATOR-202, with a link that is dead from before the delete until after the
// candidacy's end.
func TestTrap05_DeleteIntoABlackHole(t *testing.T) {
	for _, end := range []struct {
		name string
		heal time.Duration // after the resignation
	}{
		{"until the client dials again", time.Second},
		{"until the session has ended", 2 * timeout},
	} {
		t.Run(end.name, func(t *testing.T) {
			withServers(t, 1, func(h *harness) {
				c, next := h.join(h.connect()), h.join(h.connect())
				h.srv.Blackhole(zktest.BothWays, c.conn.SessionID())
				h.srv.Refuse(true)
				h.requireDuration(confirmLimit, func() { require.ErrorIs(h, c.Resign(), leaderelection.ErrUnconfirmed) })
				h.advance(0)
				require.NoError(h, c.requireOver())
				h.requireIDs(c.ID(), next.ID())
				next.requireFollows(c)
				h.advance(end.heal)
				h.srv.Refuse(false)
				h.advance(timeout)
				require.NoError(h, c.Resign(), "now it is confirmed")
				next.requireLeads()
				h.requireIDs(next.ID())
			})
		})
	}
}

// vitess #15756, etcd #22123: the cleanup uses the context whose end has caused
// it, and does nothing.
func TestTrap06_CleanupAfterTheContext(t *testing.T) {
	for _, state := range []struct {
		name  string
		spoil func(h *harness, conn *zk.Conn) (repair func())
		join  bool // break it before the candidate joins
	}{
		{"connected", func(*harness, *zk.Conn) func() { return func() {} }, false},
		{"disconnected", func(h *harness, conn *zk.Conn) func() {
			h.disconnect(conn)
			return h.reconnect
		}, false},
		{"silent", func(h *harness, conn *zk.Conn) func() {
			h.srv.Blackhole(zktest.BothWays, conn.SessionID())
			return func() { h.srv.Heal(conn.SessionID()) }
		}, false},
		{"during the create", func(h *harness, _ *zk.Conn) func() {
			hold, release := h.hold()
			h.srv.After(zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: 1}, hold)
			return release
		}, true},
	} {
		t.Run(state.name, func(t *testing.T) {
			withServers(t, 1, func(h *harness) {
				ctx, cancel := context.WithCancel(h.Context())
				conn := h.connect()
				session := conn.SessionID()
				repair := func() {}
				if state.join {
					repair = state.spoil(h, conn)
				}
				c := h.join(conn, leaderelection.WithContext(ctx))
				if !state.join {
					grant := c.requireLeads()
					repair = state.spoil(h, conn)
					defer func() { require.ErrorIs(h, grant.Err(), leaderelection.ErrResigned) }()
				}
				cancel()
				h.advance(confirmLimit)
				require.NoError(h, c.requireOver())
				repair()
				h.advance(shortTime)
				require.NoError(h, c.Resign())
				h.requireIDs()
				require.Equal(h, session, conn.SessionID(), "the session's end is no solution")
			})
		})
	}
}

// CURATOR-584, CURATOR-268: a write is applied, its answer lost, and a retry
// applies it once more, or is refused and counts as a failure.
func TestTrap07_WriteAnswerLost(t *testing.T) {
	t.Run("of the leader", func(t *testing.T) {
		forEachLoss(t, allLosses, 1, func(h *harness, l loss) {
			h.create("/register")
			c := h.join(h.connect())
			c.requireLeads()
			lost := l.set(h.srv, zktest.Match{Op: zktest.OpMulti, Path: "/register", Nth: 1})
			_, err := c.multi(&zk.SetDataRequest{Path: "/register", Data: []byte("1"), Version: -1})
			require.ErrorIs(h, err, leaderelection.ErrUnconfirmed, "nobody can know")
			h.requireMet(lost)
			h.advance(timeout)
			want := int32(0)
			if l.applied {
				want = 1
			}
			require.Equal(h, want, h.stat("/register").Version, "it is not repeated")
		})
	})
	t.Run("of the end of an election", func(t *testing.T) {
		forEachLoss(t, allLosses, 1, func(h *harness, l loss) {
			k := 1
			for met := true; met; k++ {
				c, next := h.join(h.connect()), h.join(h.connect())
				deleter := h.connect()
				lost := l.set(h.srv, zktest.Match{Session: deleter.SessionID(), Nth: k})
				require.NoError(h, leaderelection.DeleteElection(deleter, node, leaderelection.WithSessionTimeout(timeout)), "request %d", k)
				h.advance(shortTime)
				require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
				require.ErrorIs(h, next.requireOver(), leaderelection.ErrElectionOver)
				found, _, err := h.operator.Exists(node)
				require.NoError(h, err)
				require.False(h, found)
				if met = isMet(lost); !met {
					lost.Remove()
				}
				h.create(node)
			}
			require.Greater(h, k, 4, "it takes some requests")
		})
	})
	t.Run("of the election node's create", func(t *testing.T) {
		forEachLoss(t, allLosses, 1, func(h *harness, l loss) {
			lost := l.set(h.srv, zktest.Match{Op: zktest.OpCreate, Path: "/x", Nth: 1})
			_, err := leaderelection.NewElection(h.connect(), "/x/y", leaderelection.WithCreateNode(), leaderelection.WithSessionTimeout(timeout))
			require.NoError(h, err)
			h.requireMet(lost)
			h.stat("/x/y")
		})
	})
}

// CURATOR-559: loops of retries inside of loops of retries. There is one try for
// each connection, and what limits the whole is not multiplied.
func TestTrap09_OneLayerOfRetries(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		c, next := h.join(h.connect()), h.join(h.connect())
		lost := h.srv.Before(zktest.Match{Op: zktest.OpDelete, Path: anyCandidate}, zktest.Cut)
		h.srv.ResetLog()
		h.requireDuration(confirmLimit, func() { require.ErrorIs(h, c.Resign(), leaderelection.ErrUnconfirmed) })
		h.advance(time.Minute)
		log := h.srv.Log().Session(c.conn.SessionID())
		require.InDelta(h, log.Count(zktest.OpConnect), log.Count(zktest.OpDelete), 1)
		require.Greater(h, log.Count(zktest.OpDelete), 30, "it is not given up")
		lost.Remove()
		h.advance(2 * time.Second)
		require.NoError(h, c.Resign())
		next.requireLeads()
	})
}

// ZOOKEEPER-2886: nor does a server that answers at once, and always that the
// session has moved, get one request after the other.
func TestTrap09_RetriesPause(t *testing.T) {
	for _, op := range []zktest.Op{zktest.OpCreate, zktest.OpGetChildren2, zktest.OpGetData, zktest.OpMulti} {
		t.Run(op.String(), func(t *testing.T) {
			withServers(t, 1, func(h *harness) {
				ahead, conn := h.createContender(), h.connect()
				moved := h.srv.Before(zktest.Match{Op: op, Session: conn.SessionID()}, zktest.Fail(zk.ErrSessionMoved))
				h.srv.ResetLog()
				c := h.join(conn)
				h.advance(time.Minute)
				require.Less(h, h.srv.Log().Session(conn.SessionID()).Count(op), 300, "more than five a second")
				c.requireNeverLed()
				moved.Remove()
				h.advance(timeout)
				require.Equal(h, ahead, c.newest().NowFollowing)
				h.remove(ahead)
				h.advance(timeout)
				c.requireLeads()
				c.requireOnlyCandidate()
			})
		})
	}
}

// etcd #22082, #22123: a stale end deletes what belongs to a newer candidacy.
func TestTrap44_StaleResign(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		// The delete of the first stays open while the second joins on the
		// same connection, and goes on when the second leads already.
		conn := h.connect()
		old := h.join(conn)
		grant := old.requireLeads()
		lost := h.srv.Before(zktest.Match{Op: zktest.OpDelete, Path: anyCandidate, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			h.srv.Refuse(true)
			return zktest.Cut(q)
		})
		require.ErrorIs(h, old.Resign(), leaderelection.ErrUnconfirmed)
		h.requireMet(lost)
		h.remove(old.ID())
		h.srv.Refuse(false)
		c := h.join(conn)
		h.advance(time.Second + shortTime)
		again := c.requireLeads()
		for range 3 {
			require.NoError(h, old.Resign())
		}
		_, err := old.multi()
		require.ErrorIs(h, err, leaderelection.ErrNotLeader)
		require.ErrorIs(h, grant.Err(), leaderelection.ErrResigned)
		h.advance(timeout)
		c.requireOnlyCandidate()
		require.NoError(h, again.Err())
		require.Len(h, c.received(), 1)
	})
}

// kazoo and Curator's MultiLock take the time for each of their waits. Here the
// time is for the whole of a call, however many requests it takes.
func TestTrap46_OneDeadlineForAWholeCall(t *testing.T) {
	const limit = 3 * time.Second
	slow := func(h *harness) *zk.Conn {
		conn := h.connect()
		h.srv.Delay(zktest.ToServer, time.Second, conn.SessionID())
		return conn
	}
	within := func(h *harness) leaderelection.Option {
		ctx, cancel := context.WithTimeout(h.Context(), limit)
		h.Cleanup(cancel)
		return leaderelection.WithContext(ctx)
	}
	t.Run("NewElection", func(t *testing.T) {
		withServers(t, 1, func(h *harness) {
			conn := slow(h)
			h.requireDuration(limit, func() {
				_, err := leaderelection.NewElection(conn, "/a/b/c/d", leaderelection.WithCreateNode(), within(h))
				require.ErrorIs(h, err, context.DeadlineExceeded)
			})
		})
	})
	t.Run("DeleteElection", func(t *testing.T) {
		withServers(t, 1, func(h *harness) {
			conn := slow(h)
			c := h.join(h.connect())
			h.requireDuration(limit, func() {
				err := leaderelection.DeleteElection(conn, node, within(h))
				require.ErrorIs(h, err, leaderelection.ErrUnconfirmed)
				require.ErrorIs(h, err, context.DeadlineExceeded)
			})
			h.advance(timeout)
			require.NoError(h, leaderelection.DeleteElection(h.operator, node))
			h.advance(shortTime)
			require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
		})
	})
	t.Run("Candidates", func(t *testing.T) {
		withServers(t, 1, func(h *harness) {
			for range 200 {
				h.createContender()
			}
			conn := slow(h)
			h.requireDuration(limit, func() {
				_, err := leaderelection.Candidates(conn, node, within(h))
				require.ErrorIs(h, err, context.DeadlineExceeded)
			})
		})
	})
	t.Run("Resign and EndElection", func(t *testing.T) {
		withServers(t, 1, func(h *harness) {
			c, d := h.join(h.connect()), h.join(h.connect())
			h.srv.Blackhole(zktest.BothWays, c.conn.SessionID(), d.conn.SessionID())
			h.requireDuration(confirmLimit, func() { require.ErrorIs(h, c.Resign(), leaderelection.ErrUnconfirmed) })
			h.requireDuration(confirmLimit+confirmLimit/15, func() { require.ErrorIs(h, d.EndElection(), leaderelection.ErrUnconfirmed) })
			h.advance(0)
			require.ErrorIs(h, d.requireOver(), leaderelection.ErrElectionOver)
		})
	})
}
