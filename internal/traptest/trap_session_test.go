package traptest

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// CURATOR-696, CURATOR-604: a candidate takes the first place although its znode
// is from the session before, and is about to go.
func TestTrap11_ZnodeOfThePreviousSession(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		leader, c := h.join(h.connect()), h.join(h.connect())
		c.requireFollows(leader)
		h.orphanZnode(c)
		h.srv.Before(zktest.Match{Op: zktest.OpDelete, Path: c.ID(), Nth: 1}, zktest.Fail(zk.ErrNoAuth)) // it cannot delete that
		leader.resign()
		h.reconnect()
		h.advance(timeout)
		require.ErrorIs(h, c.requireOver(), leaderelection.ErrSessionExpired)
		c.requireNeverLed()
		h.requireIDs(c.ID())
	})
}

// CURATOR-696: the own znode goes together with the predecessor, and the candidate
// hears of both at once.
func TestTrap11_OwnZnodeGoesWithTheLeader(t *testing.T) {
	for range 20 { // of two events it takes any first
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
			busy.Store(true) // with telling whom it follows now
			h.remove(second)
			h.advance(timeout) // it has a lease, and would lead without a question
			_, err := h.operator.Multi(
				&zk.DeleteRequest{Path: c.ID(), Version: -1},
				&zk.DeleteRequest{Path: ahead, Version: -1},
			)
			require.NoError(h, err)
			h.advance(0)
			release()
			h.advance(shortTime)
			require.ErrorIs(h, c.requireOver(), leaderelection.ErrCandidateDeleted)
			require.False(h, led.Load())
			require.Equal(h, ahead, c.received()[1].NowFollowing)
		})
	}
}

// CURATOR-696, where both are of one session, whose end takes them one by one.
func TestTrap11_SessionTakesTheLeaderToo(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		conn := h.connect()
		first := h.join(conn)
		var led atomic.Bool
		second := h.join(conn, onStatus(func(s leaderelection.Status) {
			led.Store(led.Load() || s.Role == leaderelection.Leader)
		}))
		h.advance(timeout) // it has a lease, and would lead without a question
		h.expire(conn)
		h.advance(shortTime)
		require.False(h, led.Load())
		for _, c := range []*candidate{first, second} {
			require.ErrorIs(h, c.requireOver(), leaderelection.ErrSessionExpired)
		}
		h.requireIDs()
	})
}

// KAFKA-1387, ZOOKEEPER-2985, CURATOR-696: whoever registers anew meets what the
// old session has left, takes it for the own, and has nothing when that goes.
func TestTrap19_RejoinMeetsTheOldZnode(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		c := h.join(h.connect(), leaderelection.WithRejoin())
		first := c.requireLeads()
		old := c.ID()
		h.orphanZnode(c)
		h.srv.Before(zktest.Match{Op: zktest.OpDelete, Path: old, Nth: 1}, zktest.Fail(zk.ErrNoAuth)) // it cannot delete that
		h.reconnect()
		h.advance(timeout)
		require.ErrorIs(h, first.Err(), leaderelection.ErrSessionExpired)
		require.NotEqual(h, old, c.ID())
		require.Equal(h, old, c.newest().NowFollowing)
		h.remove(old)
		h.advance(0)
		require.Greater(h, c.requireLeads().Token(), first.Token())
		c.requireOnlyCandidate()
	})
}

// KAFKA-7165, dubbo #5135, helix #642: a program that was started again while its
// old session lives stands behind its former self, to the end of that session.
func TestTrap19_RestartBehindTheOldZnode(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		crashed := h.join(h.connect(), leaderelection.WithClientName("a"))
		h.advance(timeout + shortTime)
		h.srv.Blackhole(zktest.BothWays, crashed.conn.SessionID())
		left := h.serverSession(crashed).ExpiresIn
		again := h.join(h.connect(), leaderelection.WithClientName("a"))
		h.srv.Refuse(true)
		h.advance(left - 1)
		again.requireFollows(crashed)
		h.advance(1)
		again.requireLeads()
		h.srv.Refuse(false)
		h.srv.Heal()
		h.advance(timeout)
		require.ErrorIs(h, crashed.requireOver(), leaderelection.ErrSessionExpired)
	})
}

// CURATOR-460, TN14: a lease that is counted from the moment at which the client
// sees the connection break ends after the session.
func TestTrap12_LeaseCountsFromTheLastProof(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		c, next := h.join(h.connect()), h.join(h.connect())
		l := c.requireLeads()
		h.advance(2*timeout + shortTime)
		h.srv.Blackhole(zktest.BothWays, c.conn.SessionID())
		h.srv.Refuse(true)
		h.requireSuspendedInTime(c, l)
		require.Equal(h, zk.StateHasSession, c.conn.State(), "the client library has seen nothing yet")
		h.advance(h.serverSession(c).ExpiresIn - 1)
		next.requireFollows(c)
		h.advance(1)
		next.requireLeads()
		h.srv.Refuse(false)
		h.srv.Heal()
		h.advance(2 * timeout)
		require.ErrorIs(h, c.requireOver(), leaderelection.ErrSessionExpired)
	})
}

// suspendsInTime asserts that a leader that cannot prove its leadership from now
// on is suspended when its lease ends, half a session timeout after what was
// proven last.
func (h *harness) requireSuspendedInTime(c *candidate, l *leaderelection.Leadership) {
	h.Helper()
	left := time.Until(l.Deadline())
	require.LessOrEqual(h, left, timeout/2)
	require.Greater(h, left, timeout/2-timeout/8-timeout/32, "the last proof is old")
	require.Greater(h, h.serverSession(c).ExpiresIn-left, timeout/8, "the session's end is near")
	h.advance(left - 1)
	require.Same(h, l, c.requireLeads())
	h.advance(1)
	require.Equal(h, leaderelection.Suspended, c.newest().Role)
	require.Equal(h, time.Now(), c.newest().at)
	require.ErrorIs(h, l.Err(), leaderelection.ErrLeaseExpired)
}

// CURATOR-444: a server that is cut off answers reads, while the others expire
// the session.
func TestTrap13_PartitionedServerAnswers(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		c, next := h.join(h.connectTo(0)), h.join(h.connectTo(1))
		reader := h.connectTo(0)
		l := c.requireLeads()
		h.advance(2*timeout + shortTime)
		h.srv.Partition()
		h.eachServer(func(s *zktest.Server) { s.Refuse(true) })
		h.requireSuspendedInTime(c, l)
		h.advance(h.serverSession(c).ExpiresIn - 1)
		next.requireFollows(c)
		h.advance(1)
		next.requireLeads()
		found, _, err := reader.Exists(c.ID())
		require.NoError(h, err)
		require.True(h, found, "for the old leader's server nothing has happened")
		_, err = c.multi()
		require.ErrorIs(h, err, leaderelection.ErrNotLeader)
		h.eachServer(func(s *zktest.Server) { s.Refuse(false) })
		h.srv.Heal()
		h.advance(2 * timeout)
		require.ErrorIs(h, c.requireOver(), leaderelection.ErrSessionExpired)
		next.requireLeads()
	})
}

// CURATOR-444, where the client finds a way to another server in time.
func TestTrap13_PartitionedServerIsLeftInTime(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		c, next := h.join(h.connectTo(0)), h.join(h.connectTo(1))
		l := c.requireLeads()
		h.advance(2*timeout + shortTime)
		h.srv.Partition()
		h.requireSuspendedInTime(c, l)
		h.advance(timeout)
		require.NotEqual(h, h.srv.Name(), c.conn.Server())
		require.Equal(h, l.Token(), c.requireLeads().Token())
		next.requireFollows(c)
		require.Len(h, next.received(), 1)
	})
}

// ZOOKEEPER-2886: a session that has moved is no reason to lose leadership, nor
// does such an answer prove it.
func TestTrap10_SessionMovedDuringCheck(t *testing.T) {
	forEachLoss(t, movedSessions, 1, func(h *harness, l loss) {
		c, next := h.join(h.connect()), h.join(h.connect())
		grant := c.requireLeads()
		for range 5 {
			h.advance(timeout + shortTime)
			one := l.set(h.srv, zktest.Match{Op: zktest.OpMulti, Path: c.ID(), Nth: 1})
			h.advance(timeout / 4)
			h.requireMet(one)
		}
		require.NoError(h, grant.Err())
		all := l.set(h.srv, zktest.Match{Op: zktest.OpMulti, Path: c.ID()})
		h.requireSuspendedInTime(c, grant)
		h.advance(timeout)
		require.Equal(h, leaderelection.Suspended, c.newest().Role)
		all.Remove()
		h.advance(timeout)
		require.Equal(h, grant.Token(), c.requireLeads().Token())
		next.requireFollows(c)
	})
}

// ClickHouse #116690: the client library goes on in a new session without
// openACL's having seen the old one expire.
func TestTrap18_NewSessionUnseen(t *testing.T) {
	for _, leading := range []bool{true, false} {
		t.Run(map[bool]string{true: "while leading", false: "while following"}[leading], func(t *testing.T) {
			withServers(t, 3, func(h *harness) {
				var ahead string
				if !leading {
					ahead = h.createContender()
				}
				c := h.join(h.connect())
				require.Equal(h, ahead, c.newest().NowFollowing)
				old := c.conn.SessionID()
				h.expire(c.conn)
				h.advance(0) // there are three servers: the next one is dialled at once
				require.Equal(h, zk.StateHasSession, c.conn.State())
				require.NotEqual(h, old, c.conn.SessionID())
				h.advance(shortTime)
				require.ErrorIs(h, c.requireOver(), leaderelection.ErrSessionExpired)
				if leading {
					h.requireIDs()
				} else {
					h.requireIDs(ahead)
				}
			})
		})
	}
	t.Run("while entering", func(t *testing.T) {
		// The create is queued in one session and carried out in the next.
		withServers(t, 3, func(h *harness) {
			conn := h.connect()
			old := conn.SessionID()
			e, err := leaderelection.NewElection(conn, node, leaderelection.WithSessionTimeout(timeout))
			require.NoError(h, err)
			h.disconnect(conn)
			require.NoError(h, h.srv.ExpireSession(old))
			c := h.startElection(e, conn)
			h.advance(shortTime)
			h.reconnect()
			h.advance(timeout)
			require.NotEqual(h, old, conn.SessionID())
			require.Equal(h, h.stat(c.ID()).Czxid, c.requireLeads().Token())
			c.requireOnlyCandidate()
			c.resign()
		})
	})
}

// ZOOKEEPER-4837: the server forgets to delete an ephemeral znode. Whoever asks
// is shown what stands there, and can delete that and nothing else.
func TestTrap20_ZnodeOfNobody(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		left := node + "/_c_00000000-0000-4000-8000-000000000000-latch-0000000000"
		h.create(left)
		c := h.join(h.connect())
		require.Equal(h, left, c.newest().NowFollowing)
		h.advance(time.Minute)
		c.requireNeverLed()
		info, found, err := leaderelection.CurrentLeader(h.operator, node)
		require.NoError(h, err)
		require.True(h, found)
		require.Equal(h, leaderelection.CandidateInfo{ID: left, Token: h.stat(left).Czxid}, info)
		require.Zero(h, h.stat(info.ID).EphemeralOwner)
		h.remove(info.ID)
		h.advance(0)
		require.Greater(h, c.requireLeads().Token(), info.Token)
	})
}

// FLINK-10052, CURATOR-87, CURATOR-505: a connection that flaps makes leadership
// flap.
func TestTrap21_FlappingConnection(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		conn := h.connect()
		c, next := h.join(conn), h.join(conn)
		last := h.join(h.connect())
		grant, session := c.requireLeads(), conn.SessionID()
		for range 20 {
			h.eachServer(func(s *zktest.Server) { s.DropConnections(session) })
			h.advance(timeout/5 + shortTime)
			h.disconnect(conn)
			h.reconnect() // takes longer than a second
			h.advance(timeout / 2)
		}
		require.NoError(h, grant.Err())
		require.Equal(h, session, conn.SessionID())
		for _, each := range []*candidate{c, next, last} {
			require.Len(h, each.received(), 1)
		}
		h.requireIDs(c.ID(), next.ID(), last.ID())
		require.Len(h, h.createdIDs(), 3)
	})
}

// FLINK-10052: proofs that come so late that each is good for a moment only do
// not make it flap either.
func TestTrap21_SlowLink(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		c, next := h.join(h.connect()), h.join(h.connect())
		grant := c.requireLeads()
		h.srv.Delay(zktest.BothWays, timeout*3/16, c.conn.SessionID())
		h.advance(20 * timeout)
		require.Len(h, c.received(), 2)
		require.Equal(h, leaderelection.Suspended, c.newest().Role)
		next.requireFollows(c)
		h.srv.Heal()
		h.advance(timeout)
		require.Equal(h, grant.Token(), c.requireLeads().Token())
		require.Len(h, c.received(), 3)
	})
}
