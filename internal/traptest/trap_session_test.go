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
	play(t, 3, func(w *world) {
		leader, c := w.enlist(w.connect()), w.enlist(w.connect())
		c.follows(leader)
		w.outlive(c)
		w.srv.Before(zktest.Match{Op: zktest.OpDelete, Path: c.ID(), Nth: 1}, zktest.Fail(zk.ErrNoAuth)) // it cannot delete that
		leader.resign()
		w.restore()
		w.pass(timeout)
		require.ErrorIs(w, c.over(), leaderelection.ErrSessionExpired)
		c.never()
		w.line(c.ID())
	})
}

// CURATOR-696: the own znode goes together with the predecessor, and the candidate
// hears of both at once.
func TestTrap11_OwnZnodeGoesWithTheLeader(t *testing.T) {
	for range 20 { // of two events it takes any first
		play(t, 1, func(w *world) {
			ahead, second := w.stand(w.operator), w.stand(w.operator)
			wait, open := w.gate()
			var busy, led atomic.Bool
			c := w.enlist(w.connect(), notes(&led, func() {
				if busy.Load() {
					<-wait
				}
			}))
			busy.Store(true) // with telling whom it follows now
			w.remove(second)
			w.pass(timeout) // it has a lease, and would lead without a question
			_, err := w.operator.Multi(
				&zk.DeleteRequest{Path: c.ID(), Version: -1},
				&zk.DeleteRequest{Path: ahead, Version: -1},
			)
			require.NoError(w, err)
			w.pass(0)
			open()
			w.pass(moment)
			require.ErrorIs(w, c.over(), leaderelection.ErrCandidateDeleted)
			require.False(w, led.Load())
			require.Equal(w, ahead, c.all()[1].NowFollowing)
		})
	}
}

// CURATOR-696, where both are of one session, whose end takes them one by one.
func TestTrap11_SessionTakesTheLeaderToo(t *testing.T) {
	play(t, 3, func(w *world) {
		conn := w.connect()
		first := w.enlist(conn)
		var led atomic.Bool
		second := w.enlist(conn, notes(&led, func() {}))
		w.pass(timeout) // it has a lease, and would lead without a question
		w.expire(conn)
		w.pass(moment)
		require.False(w, led.Load())
		for _, c := range []*candidate{first, second} {
			require.ErrorIs(w, c.over(), leaderelection.ErrSessionExpired)
		}
		w.line()
	})
}

// KAFKA-1387, ZOOKEEPER-2985, CURATOR-696: whoever registers anew meets what the
// old session has left, takes it for the own, and has nothing when that goes.
func TestTrap19_RejoinMeetsTheOldZnode(t *testing.T) {
	play(t, 3, func(w *world) {
		c := w.enlist(w.connect(), leaderelection.WithRejoin())
		first := c.leads()
		old := c.ID()
		w.outlive(c)
		w.srv.Before(zktest.Match{Op: zktest.OpDelete, Path: old, Nth: 1}, zktest.Fail(zk.ErrNoAuth)) // it cannot delete that
		w.restore()
		w.pass(timeout)
		require.ErrorIs(w, first.Err(), leaderelection.ErrSessionExpired)
		require.NotEqual(w, old, c.ID())
		require.Equal(w, old, c.last().NowFollowing)
		w.remove(old)
		w.pass(0)
		require.Greater(w, c.leads().Token(), first.Token())
		c.alone()
	})
}

// KAFKA-7165, dubbo #5135, helix #642: a program that was started again while its
// old session lives stands behind its former self, to the end of that session.
func TestTrap19_RestartBehindTheOldZnode(t *testing.T) {
	play(t, 1, func(w *world) {
		crashed := w.enlist(w.connect(), leaderelection.WithClientName("a"))
		w.pass(timeout + moment)
		w.srv.Blackhole(zktest.BothWays, crashed.conn.SessionID())
		left := w.session(crashed).ExpiresIn
		again := w.enlist(w.connect(), leaderelection.WithClientName("a"))
		w.srv.Refuse(true)
		w.pass(left - 1)
		again.follows(crashed)
		w.pass(1)
		again.leads()
		w.srv.Refuse(false)
		w.srv.Heal()
		w.pass(timeout)
		require.ErrorIs(w, crashed.over(), leaderelection.ErrSessionExpired)
	})
}

// CURATOR-460, TN14: a lease that is counted from the moment at which the client
// sees the connection break ends after the session.
func TestTrap12_LeaseCountsFromTheLastProof(t *testing.T) {
	play(t, 1, func(w *world) {
		c, next := w.enlist(w.connect()), w.enlist(w.connect())
		l := c.leads()
		w.pass(2*timeout + moment)
		w.srv.Blackhole(zktest.BothWays, c.conn.SessionID())
		w.srv.Refuse(true)
		w.suspendsInTime(c, l)
		require.Equal(w, zk.StateHasSession, c.conn.State(), "the client library has seen nothing yet")
		w.pass(w.session(c).ExpiresIn - 1)
		next.follows(c)
		w.pass(1)
		next.leads()
		w.srv.Refuse(false)
		w.srv.Heal()
		w.pass(2 * timeout)
		require.ErrorIs(w, c.over(), leaderelection.ErrSessionExpired)
	})
}

// suspendsInTime asserts that a leader that cannot prove its leadership from now
// on is suspended when its lease ends, half a session timeout after what was
// proven last.
func (w *world) suspendsInTime(c *candidate, l *leaderelection.Leadership) {
	w.Helper()
	left := time.Until(l.Deadline())
	require.LessOrEqual(w, left, timeout/2)
	require.Greater(w, left, timeout/2-timeout/8-timeout/32, "the last proof is old")
	require.Greater(w, w.session(c).ExpiresIn-left, timeout/8, "the session's end is near")
	w.pass(left - 1)
	require.Same(w, l, c.leads())
	w.pass(1)
	require.Equal(w, leaderelection.Suspended, c.last().Role)
	require.Equal(w, time.Now(), c.last().at)
	require.ErrorIs(w, l.Err(), leaderelection.ErrLeaseExpired)
}

// CURATOR-444: a server that is cut off answers reads, while the others expire
// the session.
func TestTrap13_PartitionedServerAnswers(t *testing.T) {
	play(t, 3, func(w *world) {
		c, next := w.enlist(w.connectTo(0)), w.enlist(w.connectTo(1))
		reader := w.connectTo(0)
		l := c.leads()
		w.pass(2*timeout + moment)
		w.srv.Partition()
		w.servers(func(s *zktest.Server) { s.Refuse(true) })
		w.suspendsInTime(c, l)
		w.pass(w.session(c).ExpiresIn - 1)
		next.follows(c)
		w.pass(1)
		next.leads()
		found, _, err := reader.Exists(c.ID())
		require.NoError(w, err)
		require.True(w, found, "for the old leader's server nothing has happened")
		_, err = c.Multi()
		require.ErrorIs(w, err, leaderelection.ErrNotLeader)
		w.servers(func(s *zktest.Server) { s.Refuse(false) })
		w.srv.Heal()
		w.pass(2 * timeout)
		require.ErrorIs(w, c.over(), leaderelection.ErrSessionExpired)
		next.leads()
	})
}

// CURATOR-444, where the client finds a way to another server in time.
func TestTrap13_PartitionedServerIsLeftInTime(t *testing.T) {
	play(t, 3, func(w *world) {
		c, next := w.enlist(w.connectTo(0)), w.enlist(w.connectTo(1))
		l := c.leads()
		w.pass(2*timeout + moment)
		w.srv.Partition()
		w.suspendsInTime(c, l)
		w.pass(timeout)
		require.NotEqual(w, w.srv.Name(), c.conn.Server())
		require.Equal(w, l.Token(), c.leads().Token())
		next.follows(c)
		require.Len(w, next.all(), 1)
	})
}

// ZOOKEEPER-2886: a session that has moved is no reason to lose leadership, nor
// does such an answer prove it.
func TestTrap10_SessionMovedDuringCheck(t *testing.T) {
	each(t, answers, 1, func(w *world, l loss) {
		c, next := w.enlist(w.connect()), w.enlist(w.connect())
		grant := c.leads()
		for range 5 {
			w.pass(timeout + moment)
			one := l.set(w.srv, zktest.Match{Op: zktest.OpMulti, Path: c.ID(), Nth: 1})
			w.pass(timeout / 4)
			w.ran(one)
		}
		require.NoError(w, grant.Err())
		all := l.set(w.srv, zktest.Match{Op: zktest.OpMulti, Path: c.ID()})
		w.suspendsInTime(c, grant)
		w.pass(timeout)
		require.Equal(w, leaderelection.Suspended, c.last().Role)
		all.Remove()
		w.pass(timeout)
		require.Equal(w, grant.Token(), c.leads().Token())
		next.follows(c)
	})
}

// ClickHouse #116690: the client library goes on in a new session without
// anybody's having seen the old one expire.
func TestTrap18_NewSessionUnseen(t *testing.T) {
	for _, leading := range []bool{true, false} {
		t.Run(map[bool]string{true: "while leading", false: "while following"}[leading], func(t *testing.T) {
			play(t, 3, func(w *world) {
				var ahead string
				if !leading {
					ahead = w.stand(w.operator)
				}
				c := w.enlist(w.connect())
				require.Equal(w, ahead, c.last().NowFollowing)
				old := c.conn.SessionID()
				w.expire(c.conn)
				w.pass(0) // there are three servers: the next one is dialled at once
				require.Equal(w, zk.StateHasSession, c.conn.State())
				require.NotEqual(w, old, c.conn.SessionID())
				w.pass(moment)
				require.ErrorIs(w, c.over(), leaderelection.ErrSessionExpired)
				if leading {
					w.line()
				} else {
					w.line(ahead)
				}
			})
		})
	}
	t.Run("while entering", func(t *testing.T) {
		// The create is queued in one session and carried out in the next.
		play(t, 3, func(w *world) {
			conn := w.connect()
			old := conn.SessionID()
			e, err := leaderelection.NewElection(conn, node, leaderelection.WithSessionTimeout(timeout))
			require.NoError(w, err)
			w.cut(conn)
			require.NoError(w, w.srv.ExpireSession(old))
			c := w.run(e, conn)
			w.pass(moment)
			w.restore()
			w.pass(timeout)
			require.NotEqual(w, old, conn.SessionID())
			require.Equal(w, w.stat(c.ID()).Czxid, c.leads().Token())
			c.alone()
			c.resign()
		})
	})
}

// ZOOKEEPER-4837: the server forgets to delete an ephemeral znode. Whoever asks
// is shown what stands there, and can delete that and nothing else.
func TestTrap20_ZnodeOfNobody(t *testing.T) {
	play(t, 1, func(w *world) {
		left := node + "/_c_00000000-0000-4000-8000-000000000000-latch-0000000000"
		w.create(left)
		c := w.enlist(w.connect())
		require.Equal(w, left, c.last().NowFollowing)
		w.pass(time.Minute)
		c.never()
		info, found, err := leaderelection.CurrentLeader(w.operator, node)
		require.NoError(w, err)
		require.True(w, found)
		require.Equal(w, leaderelection.CandidateInfo{ID: left, Token: w.stat(left).Czxid}, info)
		require.Zero(w, w.stat(info.ID).EphemeralOwner)
		w.remove(info.ID)
		w.pass(0)
		require.Greater(w, c.leads().Token(), info.Token)
	})
}

// FLINK-10052, CURATOR-87, CURATOR-505: a connection that flaps makes leadership
// flap.
func TestTrap21_FlappingConnection(t *testing.T) {
	play(t, 3, func(w *world) {
		conn := w.connect()
		c, next := w.enlist(conn), w.enlist(conn)
		last := w.enlist(w.connect())
		grant, session := c.leads(), conn.SessionID()
		for range 20 {
			w.servers(func(s *zktest.Server) { s.DropConnections(session) })
			w.pass(timeout/5 + moment)
			w.cut(conn)
			w.restore() // takes longer than a second
			w.pass(timeout / 2)
		}
		require.NoError(w, grant.Err())
		require.Equal(w, session, conn.SessionID())
		for _, each := range []*candidate{c, next, last} {
			require.Len(w, each.all(), 1)
		}
		w.line(c.ID(), next.ID(), last.ID())
		require.Len(w, w.created(), 3)
	})
}

// FLINK-10052: proofs that come so late that each is good for a moment only do
// not make it flap either.
func TestTrap21_SlowLink(t *testing.T) {
	play(t, 1, func(w *world) {
		c, next := w.enlist(w.connect()), w.enlist(w.connect())
		grant := c.leads()
		w.srv.Delay(zktest.BothWays, timeout*3/16, c.conn.SessionID())
		w.pass(20 * timeout)
		require.Len(w, c.all(), 2)
		require.Equal(w, leaderelection.Suspended, c.last().Role)
		next.follows(c)
		w.srv.Heal()
		w.pass(timeout)
		require.Equal(w, grant.Token(), c.leads().Token())
		require.Len(w, c.all(), 3)
	})
}
