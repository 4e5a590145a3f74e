package traptest

import (
	"path"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// CURATOR-45, CURATOR-79: a create is applied and its answer lost; an orphan that
// nobody owns blocks the line.
func TestTrap01_CreateAnswerLost(t *testing.T) {
	each(t, losses, 1, createAnswerLost)
}

// ZOOKEEPER-2886: so does a server that says that the session has moved.
func TestTrap10_SessionMovedDuringCreate(t *testing.T) {
	each(t, answers, 1, createAnswerLost)
}

func createAnswerLost(w *world, l loss) {
	leader, conn := w.enlist(w.connect()), w.connect()
	session := conn.SessionID()
	lost := l.set(w.srv, zktest.Match{Op: zktest.OpCreate, Path: under, Nth: 1})
	c := w.enlist(conn)
	w.pass(timeout)
	w.ran(lost)
	c.follows(leader)
	w.line(leader.ID(), c.ID())
	if l.applied {
		require.Len(w, w.created(), 2, "what was created is used")
	}
	leader.resign()
	require.Equal(w, w.stat(c.ID()).Czxid, c.leads().Token())
	c.alone()
	require.Equal(w, session, conn.SessionID(), "it had to be solved within the session")
	c.resign()
	w.line()
}

// CURATOR-498: the search for what the create has left finds a znode of another
// session, as that of a dying one may still be seen, and takes it for the own.
func TestTrap02_ForeignOwner(t *testing.T) { play(t, 1, foreignOwner) }

func foreignOwner(w *world) {
	lost := w.srv.After(zktest.Match{Op: zktest.OpCreate, Path: under, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
		w.srv.Refuse(true)
		return zktest.Cut(q)
	})
	c := w.enlist(w.connect())
	w.ran(lost)
	mine := w.created()
	require.Len(w, mine, 1)
	guid := mine[0][:len(mine[0])-10]
	w.remove(mine[0])
	other, err := w.operator.Create(guid, nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	require.NoError(w, err)
	w.restore()
	require.NotEqual(w, other, c.ID())
	require.Equal(w, w.stat(c.ID()).Czxid, c.leads().Token())
	c.alone()
}

// CURATOR-498, with the session's end itself between create and search.
func TestTrap02_SessionEndsBeforeTheSearch(t *testing.T) { play(t, 1, sessionEndsBeforeTheSearch) }

func sessionEndsBeforeTheSearch(w *world) {
	conn := w.connect()
	old := conn.SessionID()
	lost := w.srv.After(zktest.Match{Op: zktest.OpCreate, Path: under, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
		w.srv.Refuse(true)
		return zktest.Cut(q)
	})
	c := w.enlist(conn)
	w.ran(lost)
	require.NoError(w, w.srv.ExpireSession(old))
	w.restore()
	w.pass(timeout)
	require.NotEqual(w, old, conn.SessionID())
	c.leads()
	c.alone()
	require.Len(w, w.created(), 2)
}

// ZOOKEEPER-1675: the search is answered by a server that lags behind, and does
// not show what the create has made.
func TestTrap03_SearchAtALaggingServer(t *testing.T) {
	play(t, 3, func(w *world) {
		lagging, conn := w.ensemble.Server(1), w.connect()
		lagging.Lag()
		lost := w.srv.After(zktest.Match{Op: zktest.OpCreate, Path: under, Nth: 1}, zktest.Cut)
		c := w.enlist(conn)
		w.ran(lost)
		require.Equal(w, lagging.Name(), conn.Server())
		require.NotContains(w, lagging.Tree(), "latch")
		w.pass(timeout / 4)
		require.Empty(w, c.all(), "nobody can know yet")
		lagging.Heal()
		w.pass(0)
		c.leads()
		c.alone()
		require.Len(w, w.created(), 1)
	})
}

// What the search has not shown appears later, ahead of the own znode, and the
// candidate would wait for itself.
func TestTrap03_OwnZnodeShowsUpLate(t *testing.T) {
	play(t, 1, func(w *world) {
		conn := w.connect()
		ahead := w.stand(w.operator)
		w.remove(w.stand(w.operator)) // leaves a gap in the numbers
		lost := w.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: under, Nth: 1}, zktest.Cut)
		c := w.enlist(conn)
		w.ran(lost)
		w.restore()
		require.Equal(w, ahead, c.last().NowFollowing)

		first := w.srv.Log().Filter(func(e zktest.Entry) bool { return e.Fate == zktest.CutBefore })[0].Path
		late := func(number string) {
			_, err := conn.Create(first+number, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
			require.NoError(w, err)
		}
		late("0000000001")
		w.line(ahead, first+"0000000001", c.ID())
		_, err := w.operator.Set(ahead, []byte("has the candidate look again"), -1)
		require.NoError(w, err)
		w.pass(0)
		w.line(ahead, c.ID())
		require.Len(w, c.all(), 1)
		require.Equal(w, ahead, c.last().NowFollowing)

		w.remove(ahead)
		w.pass(0)
		c.leads()
		// One that shows up still later goes when the candidate does.
		late("0000000000")
		c.resign()
		w.line()
	})
}

// kazoo's Lock has one GUID for all its creates: after a reset the same name can
// come back.
func TestTrap04_NewGUIDForEachCreate(t *testing.T) {
	play(t, 3, func(w *world) {
		first := w.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: under, Nth: 1}, zktest.Cut)
		second := w.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: under, Nth: 2}, zktest.Cut)
		c := w.enlist(w.connect(), leaderelection.WithRejoin())
		w.pass(timeout)
		w.ran(first, second)
		for range 2 {
			c.leads()
			w.expire(c.conn)
			w.pass(timeout)
		}
		c.leads()
		names := map[string]bool{}
		for _, e := range w.srv.Log() {
			if e.Op == zktest.OpCreate && strings.HasPrefix(e.Path, node+"/") {
				require.False(w, names[e.Path], "%s was used before", e.Path)
				names[e.Path] = true
			}
		}
		require.Len(w, names, 5, "two that were cut, and one for each session")
		c.alone()
	})
}

// CURATOR-724, CURATOR-180, kazoo #563: the election node goes between the look
// at it and the create. It must not be created anew behind the user's back.
func TestTrap36_NodeGoesBeforeTheCreate(t *testing.T) {
	// contain makes the election node a container that has lost its last child.
	contain := func(w *world) {
		w.remove(node)
		_, err := w.operator.CreateContainer(node, nil, zk.FlagContainer, zk.WorldACL(zk.PermAll))
		require.NoError(w, err)
		w.remove(w.stand(w.operator))
	}
	sweep := func(w *world, k int) *zktest.Hook {
		return w.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: under, Nth: k}, func(q *zktest.Request) zktest.Verdict {
			w.srv.Sweep()
			return zktest.Pass(q)
		})
	}
	ends := func(w *world, c *candidate) {
		require.ErrorIs(w, c.over(), leaderelection.ErrElectionOver)
		require.NoError(w, c.Resign())
		found, _, err := w.operator.Exists(node)
		require.NoError(w, err)
		require.False(w, found)
	}
	t.Run("at first", func(t *testing.T) {
		play(t, 1, func(w *world) {
			contain(w)
			swept := sweep(w, 1)
			c := w.enlist(w.connect(), leaderelection.WithCreateNode())
			w.ran(swept)
			ends(w, c)
			c.never()
		})
	})
	t.Run("after the session", func(t *testing.T) {
		play(t, 3, func(w *world) {
			contain(w)
			swept := sweep(w, 2)
			c := w.enlist(w.connect(), leaderelection.WithRejoin())
			c.leads()
			require.Zero(w, w.srv.Sweep(), "a candidate holds it")
			w.expire(c.conn)
			w.pass(timeout)
			w.ran(swept)
			ends(w, c)
		})
	})
	t.Run("while the connection is down", func(t *testing.T) {
		play(t, 1, func(w *world) {
			contain(w)
			conn := w.connect()
			w.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: under, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
				w.srv.Refuse(true)
				return zktest.Cut(q)
			})
			c := w.enlist(conn)
			require.Equal(w, 1, w.srv.Sweep())
			w.restore()
			ends(w, c)
		})
	})
	t.Run("and comes back as another one", func(t *testing.T) {
		play(t, 1, func(w *world) {
			contain(w)
			anew := w.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: under, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
				w.srv.Sweep()
				_, _ = w.operator.Create(node, nil, 0, zk.WorldACL(zk.PermAll))
				return zktest.Pass(q)
			})
			c := w.enlist(w.connect())
			w.ran(anew)
			require.ErrorIs(w, c.over(), leaderelection.ErrElectionOver)
			c.never()
			w.line()
			w.enlist(w.connect()).leads()
		})
	})
	t.Run("with its parents", func(t *testing.T) {
		play(t, 1, func(w *world) {
			conn := w.connect()
			_, err := leaderelection.NewElection(conn, "/a/b/c", leaderelection.WithCreateNode(), leaderelection.WithSessionTimeout(timeout))
			require.NoError(w, err)
			require.Zero(w, w.stat(path.Dir("/a/b/c")).EphemeralOwner)
		})
	})
}

// CURATOR-18, CURATOR-3: the end comes while the create is under way, and leaves
// an orphan.
func TestTrap40_EndDuringTheCreate(t *testing.T) {
	t.Run("the answer is late", func(t *testing.T) {
		play(t, 1, func(w *world) {
			answer, open := w.gate()
			w.srv.After(zktest.Match{Op: zktest.OpCreate, Path: under, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
				<-answer
				return zktest.Pass(q)
			})
			endsDuringTheCreate(w, open)
		})
	})
	each(t, losses[2:], 1, func(w *world, l loss) {
		l.set(w.srv, zktest.Match{Op: zktest.OpCreate, Path: under, Nth: 1})
		endsDuringTheCreate(w, func() {})
	})
}

func endsDuringTheCreate(w *world, answer func()) {
	conn := w.connect()
	session := conn.SessionID()
	c := w.enlist(conn)
	orphan := w.ids()
	require.Len(w, orphan, 1)
	w.elapsed(confirmed, func() {
		require.ErrorIs(w, c.Resign(), leaderelection.ErrUnconfirmed, "nobody can know yet")
	})
	w.pass(0)
	require.NoError(w, c.over())
	require.Empty(w, c.all())
	w.line(orphan...)
	answer()
	w.pass(timeout)
	require.NoError(w, c.Resign(), "now it is confirmed")
	w.line()
	require.Equal(w, session, conn.SessionID(), "the session's end is no solution")
}
