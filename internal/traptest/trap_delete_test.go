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
	each(t, losses, 1, deleteAnswerLost)
}

// ZOOKEEPER-2886: so does a server that says that the session has moved.
func TestTrap10_SessionMovedDuringDelete(t *testing.T) {
	each(t, answers, 1, deleteAnswerLost)
}

func deleteAnswerLost(w *world, l loss) {
	c, next := w.enlist(w.connect()), w.enlist(w.connect())
	grant, session := c.leads(), c.conn.SessionID()
	lost := l.set(w.srv, zktest.Match{Op: zktest.OpDelete, Path: under, Nth: 1})
	resignsUnheard(w, c, l)
	w.ran(lost)
	require.ErrorIs(w, grant.Err(), leaderelection.ErrResigned)
	next.leads()
	w.line(next.ID())
	require.Equal(w, session, c.conn.SessionID(), "the session's end is no solution")
}

// resignsUnheard has a candidate resign while a request's outcome gets lost.
func resignsUnheard(w *world, c *candidate, l loss) {
	w.Helper()
	if l.silent {
		w.elapsed(confirmed, func() { require.ErrorIs(w, c.Resign(), leaderelection.ErrUnconfirmed) })
	} else {
		require.NoError(w, c.Resign())
	}
	w.pass(0)
	require.NoError(w, c.over())
	w.pass(timeout)
	require.NoError(w, c.Resign(), "now it is confirmed")
}

// The same for a follower.
func TestTrap05_DeleteAnswerLostByFollower(t *testing.T) {
	each(t, append(losses, answers...), 1, func(w *world, l loss) {
		leader, c := w.enlist(w.connect()), w.enlist(w.connect())
		last := w.enlist(w.connect())
		grant, session := leader.leads(), c.conn.SessionID()
		lost := l.set(w.srv, zktest.Match{Op: zktest.OpDelete, Session: session, Path: under, Nth: 1})
		resignsUnheard(w, c, l)
		w.ran(lost)
		last.follows(leader)
		w.line(leader.ID(), last.ID())
		require.Equal(w, session, c.conn.SessionID(), "the session's end is no solution")
		require.NoError(w, grant.Err())
		require.Len(w, leader.all(), 1)
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
			play(t, 1, func(w *world) {
				c, next := w.enlist(w.connect()), w.enlist(w.connect())
				w.srv.Blackhole(zktest.BothWays, c.conn.SessionID())
				w.srv.Refuse(true)
				w.elapsed(confirmed, func() { require.ErrorIs(w, c.Resign(), leaderelection.ErrUnconfirmed) })
				w.pass(0)
				require.NoError(w, c.over())
				w.line(c.ID(), next.ID())
				next.follows(c)
				w.pass(end.heal)
				w.srv.Refuse(false)
				w.pass(timeout)
				require.NoError(w, c.Resign(), "now it is confirmed")
				next.leads()
				w.line(next.ID())
			})
		})
	}
}

// vitess #15756, etcd #22123: the cleanup uses the context whose end has caused
// it, and does nothing.
func TestTrap06_CleanupAfterTheContext(t *testing.T) {
	for _, state := range []struct {
		name  string
		spoil func(w *world, conn *zk.Conn) (repair func())
		join  bool // break it before the candidate joins
	}{
		{"connected", func(*world, *zk.Conn) func() { return func() {} }, false},
		{"disconnected", func(w *world, conn *zk.Conn) func() {
			w.cut(conn)
			return w.restore
		}, false},
		{"silent", func(w *world, conn *zk.Conn) func() {
			w.srv.Blackhole(zktest.BothWays, conn.SessionID())
			return func() { w.srv.Heal(conn.SessionID()) }
		}, false},
		{"during the create", func(w *world, _ *zk.Conn) func() {
			answer, open := w.gate()
			w.srv.After(zktest.Match{Op: zktest.OpCreate, Path: under, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
				<-answer
				return zktest.Pass(q)
			})
			return open
		}, true},
	} {
		t.Run(state.name, func(t *testing.T) {
			play(t, 1, func(w *world) {
				ctx, cancel := context.WithCancel(w.Context())
				conn := w.connect()
				session := conn.SessionID()
				repair := func() {}
				if state.join {
					repair = state.spoil(w, conn)
				}
				c := w.enlist(conn, leaderelection.WithContext(ctx))
				if !state.join {
					grant := c.leads()
					repair = state.spoil(w, conn)
					defer func() { require.ErrorIs(w, grant.Err(), leaderelection.ErrResigned) }()
				}
				cancel()
				w.pass(confirmed)
				require.NoError(w, c.over())
				repair()
				w.pass(moment)
				require.NoError(w, c.Resign())
				w.line()
				require.Equal(w, session, conn.SessionID(), "the session's end is no solution")
			})
		})
	}
}

// CURATOR-584, CURATOR-268: a write is applied, its answer lost, and a retry
// applies it once more, or is refused and counts as a failure.
func TestTrap07_WriteAnswerLost(t *testing.T) {
	t.Run("of the leader", func(t *testing.T) {
		each(t, append(losses, answers...), 1, func(w *world, l loss) {
			w.create("/register")
			c := w.enlist(w.connect())
			c.leads()
			lost := l.set(w.srv, zktest.Match{Op: zktest.OpMulti, Path: "/register", Nth: 1})
			_, err := c.Multi(&zk.SetDataRequest{Path: "/register", Data: []byte("1"), Version: -1})
			require.ErrorIs(w, err, leaderelection.ErrUnconfirmed, "nobody can know")
			w.ran(lost)
			w.pass(timeout)
			want := int32(0)
			if l.applied {
				want = 1
			}
			require.Equal(w, want, w.stat("/register").Version, "it is not repeated")
		})
	})
	t.Run("of the end of an election", func(t *testing.T) {
		each(t, append(losses, answers...), 1, func(w *world, l loss) {
			k := 1
			for met := true; met; k++ {
				c, next := w.enlist(w.connect()), w.enlist(w.connect())
				deleter := w.connect()
				lost := l.set(w.srv, zktest.Match{Session: deleter.SessionID(), Nth: k})
				require.NoError(w, leaderelection.DeleteElection(deleter, node, leaderelection.WithSessionTimeout(timeout)), "request %d", k)
				w.pass(moment)
				require.ErrorIs(w, c.over(), leaderelection.ErrElectionOver)
				require.ErrorIs(w, next.over(), leaderelection.ErrElectionOver)
				found, _, err := w.operator.Exists(node)
				require.NoError(w, err)
				require.False(w, found)
				if met = ran(lost); !met {
					lost.Remove()
				}
				w.create(node)
			}
			require.Greater(w, k, 4, "it takes some requests")
		})
	})
	t.Run("of the election node's create", func(t *testing.T) {
		each(t, append(losses, answers...), 1, func(w *world, l loss) {
			lost := l.set(w.srv, zktest.Match{Op: zktest.OpCreate, Path: "/x", Nth: 1})
			_, err := leaderelection.NewElection(w.connect(), "/x/y", leaderelection.WithCreateNode(), leaderelection.WithSessionTimeout(timeout))
			require.NoError(w, err)
			w.ran(lost)
			w.stat("/x/y")
		})
	})
}

// CURATOR-559: loops of retries inside of loops of retries. There is one try for
// each connection, and what limits the whole is not multiplied.
func TestTrap09_OneLayerOfRetries(t *testing.T) {
	play(t, 1, func(w *world) {
		c, next := w.enlist(w.connect()), w.enlist(w.connect())
		lost := w.srv.Before(zktest.Match{Op: zktest.OpDelete, Path: under}, zktest.Cut)
		w.srv.ResetLog()
		w.elapsed(confirmed, func() { require.ErrorIs(w, c.Resign(), leaderelection.ErrUnconfirmed) })
		w.pass(time.Minute)
		log := w.srv.Log().Session(c.conn.SessionID())
		require.InDelta(w, log.Count(zktest.OpConnect), log.Count(zktest.OpDelete), 1)
		require.Greater(w, log.Count(zktest.OpDelete), 30, "it is not given up")
		lost.Remove()
		w.pass(2 * time.Second)
		require.NoError(w, c.Resign())
		next.leads()
	})
}

// ZOOKEEPER-2886: nor does a server that answers at once, and always that the
// session has moved, get one request after the other.
func TestTrap09_RetriesPause(t *testing.T) {
	for _, op := range []zktest.Op{zktest.OpCreate, zktest.OpGetChildren2, zktest.OpGetData, zktest.OpMulti} {
		t.Run(op.String(), func(t *testing.T) {
			play(t, 1, func(w *world) {
				ahead, conn := w.stand(w.operator), w.connect()
				moved := w.srv.Before(zktest.Match{Op: op, Session: conn.SessionID()}, zktest.Fail(zk.ErrSessionMoved))
				w.srv.ResetLog()
				c := w.enlist(conn)
				w.pass(time.Minute)
				require.Less(w, w.srv.Log().Session(conn.SessionID()).Count(op), 300, "more than five a second")
				c.never()
				moved.Remove()
				w.pass(timeout)
				require.Equal(w, ahead, c.last().NowFollowing)
				w.remove(ahead)
				w.pass(timeout)
				c.leads()
				c.alone()
			})
		})
	}
}

// etcd #22082, #22123: a stale end deletes what belongs to a newer candidacy.
func TestTrap44_StaleResign(t *testing.T) {
	play(t, 1, func(w *world) {
		// The delete of the first stays open while the second joins on the
		// same connection, and goes on when the second leads already.
		conn := w.connect()
		old := w.enlist(conn)
		grant := old.leads()
		lost := w.srv.Before(zktest.Match{Op: zktest.OpDelete, Path: under, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			w.srv.Refuse(true)
			return zktest.Cut(q)
		})
		require.ErrorIs(w, old.Resign(), leaderelection.ErrUnconfirmed)
		w.ran(lost)
		w.remove(old.ID())
		w.srv.Refuse(false)
		c := w.enlist(conn)
		w.pass(time.Second + moment)
		again := c.leads()
		for range 3 {
			require.NoError(w, old.Resign())
		}
		_, err := old.Multi()
		require.ErrorIs(w, err, leaderelection.ErrNotLeader)
		require.ErrorIs(w, grant.Err(), leaderelection.ErrResigned)
		w.pass(timeout)
		c.alone()
		require.NoError(w, again.Err())
		require.Len(w, c.all(), 1)
	})
}

// kazoo and Curator's MultiLock take the time for each of their waits. Here the
// time is for the whole of a call, however many requests it takes.
func TestTrap46_OneDeadlineForAWholeCall(t *testing.T) {
	const limit = 3 * time.Second
	slow := func(w *world) *zk.Conn {
		conn := w.connect()
		w.srv.Delay(zktest.ToServer, time.Second, conn.SessionID())
		return conn
	}
	within := func(w *world) leaderelection.Option {
		ctx, cancel := context.WithTimeout(w.Context(), limit)
		w.Cleanup(cancel)
		return leaderelection.WithContext(ctx)
	}
	t.Run("NewElection", func(t *testing.T) {
		play(t, 1, func(w *world) {
			conn := slow(w)
			w.elapsed(limit, func() {
				_, err := leaderelection.NewElection(conn, "/a/b/c/d", leaderelection.WithCreateNode(), within(w))
				require.ErrorIs(w, err, context.DeadlineExceeded)
			})
		})
	})
	t.Run("DeleteElection", func(t *testing.T) {
		play(t, 1, func(w *world) {
			conn := slow(w)
			c := w.enlist(w.connect())
			w.elapsed(limit, func() {
				err := leaderelection.DeleteElection(conn, node, within(w))
				require.ErrorIs(w, err, leaderelection.ErrUnconfirmed)
				require.ErrorIs(w, err, context.DeadlineExceeded)
			})
			w.pass(timeout)
			require.NoError(w, leaderelection.DeleteElection(w.operator, node))
			w.pass(moment)
			require.ErrorIs(w, c.over(), leaderelection.ErrElectionOver)
		})
	})
	t.Run("Candidates", func(t *testing.T) {
		play(t, 1, func(w *world) {
			for range 200 {
				w.stand(w.operator)
			}
			conn := slow(w)
			w.elapsed(limit, func() {
				_, err := leaderelection.Candidates(conn, node, within(w))
				require.ErrorIs(w, err, context.DeadlineExceeded)
			})
		})
	})
	t.Run("Resign and EndElection", func(t *testing.T) {
		play(t, 1, func(w *world) {
			c, d := w.enlist(w.connect()), w.enlist(w.connect())
			w.srv.Blackhole(zktest.BothWays, c.conn.SessionID(), d.conn.SessionID())
			w.elapsed(confirmed, func() { require.ErrorIs(w, c.Resign(), leaderelection.ErrUnconfirmed) })
			w.elapsed(confirmed+confirmed/15, func() { require.ErrorIs(w, d.EndElection(), leaderelection.ErrUnconfirmed) })
			w.pass(0)
			require.ErrorIs(w, d.over(), leaderelection.ErrElectionOver)
		})
	})
}
