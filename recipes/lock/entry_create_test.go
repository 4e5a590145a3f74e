package lock

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// CURATOR-45: a create is applied and its answer lost; an orphan that nobody owns
// blocks the line.
func TestTrap01_CreateAnswerLost(t *testing.T) {
	each(t, losses, 1, createAnswerLost)
}

// ZOOKEEPER-2886: so does a server that says that the session has moved.
func TestTrap10_SessionMovedDuringCreate(t *testing.T) {
	each(t, answers, 1, createAnswerLost)
}

func createAnswerLost(w *harness, l loss) {
	holder, conn := w.lock(w.connect()), w.connect()
	session := conn.SessionID()
	lost := l.set(w.srv, zktest.Match{Op: zktest.OpCreate, Path: under, Nth: 1})
	a := w.lock(conn)
	w.pass(timeout)
	w.ran(lost)
	a.waits()
	require.Len(w, w.contenders(), 2)
	if l.applied {
		require.Len(w, w.created(), 2, "what was created is used")
	}
	holder.release()
	a.alone()
	require.Equal(w, session, conn.SessionID(), "it had to be solved within the session")
	a.release()
}

// CURATOR-79, CURATOR-62: the caller gives up meanwhile, and nobody looks for the
// orphan.
func TestTrap01_GivenUpMeanwhile(t *testing.T) {
	each(t, append(losses, answers...), 1, func(w *harness, l loss) {
		conn := w.connect()
		session := conn.SessionID()
		lost := l.set(w.srv, zktest.Match{Op: zktest.OpCreate, Path: under, Nth: 1})
		w.dirs()
		a := w.lock(conn)
		w.ran(lost)
		a.cancel()
		w.pass(0)
		require.Error(w, a.err)
		w.pass(timeout)
		w.line()
		require.Equal(w, session, conn.SessionID(), "the session's end is no solution")
	})
}

// CURATOR-498: the search for what the create has left finds a znode of another
// session, as that of a dying one may still be seen, and takes it for the own.
func TestTrap02_ForeignOwner(t *testing.T) {
	play(t, 1, func(w *harness) {
		w.dirs()
		lost := w.srv.After(zktest.Match{Op: zktest.OpCreate, Path: under, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			w.srv.Refuse(true)
			return zktest.Cut(q)
		})
		a := w.lock(w.connect())
		w.ran(lost)
		mine := w.created()
		require.Len(w, mine, 1)
		w.remove(mine[0])
		other, err := w.operator.Create(mine[0][:len(mine[0])-10], nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
		require.NoError(w, err)
		w.restore()
		require.NotEqual(w, other, a.holds().Path())
		a.alone()
	})
}

// CURATOR-498, with the session's end itself between create and search.
func TestTrap02_SessionEndsBeforeTheSearch(t *testing.T) {
	play(t, 1, func(w *harness) {
		w.dirs()
		conn := w.connect()
		old := conn.SessionID()
		lost := w.srv.After(zktest.Match{Op: zktest.OpCreate, Path: under, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			w.srv.Refuse(true)
			return zktest.Cut(q)
		})
		a := w.lock(conn)
		w.ran(lost)
		require.NoError(w, w.srv.ExpireSession(old))
		w.restore()
		w.pass(timeout)
		require.NotEqual(w, old, conn.SessionID())
		a.alone()
		require.Len(w, w.created(), 2)
	})
}

// ZOOKEEPER-1675: the search is answered by a server that lags behind, and does
// not show what the create has made.
func TestTrap03_SearchAtALaggingServer(t *testing.T) {
	play(t, 3, func(w *harness) {
		w.dirs()
		lagging, conn := w.ensemble.Server(1), w.connect()
		lagging.Lag()
		lost := w.srv.After(zktest.Match{Op: zktest.OpCreate, Path: under, Nth: 1}, zktest.Cut)
		a := w.lock(conn)
		w.ran(lost)
		require.Equal(w, lagging.Name(), conn.Server())
		require.NotContains(w, lagging.Tree(), "-lock-")
		w.pass(timeout / 4)
		a.waits() // nobody can know yet
		lagging.Heal()
		w.pass(0)
		a.alone()
		require.Len(w, w.created(), 1)
	})
}

// What the search has not shown appears later, ahead of the own znode, and the
// contender would wait for itself.
func TestTrap03_OwnZnodeShowsUpLate(t *testing.T) {
	play(t, 1, func(w *harness) {
		w.dirs()
		conn := w.connect()
		ahead := w.stand("-lock-")
		w.remove(w.stand("-lock-")) // leaves a gap in the numbers
		lost := w.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: under, Nth: 1}, zktest.Cut)
		a := w.lock(conn)
		w.ran(lost)
		w.restore()
		a.waits()
		own := w.contenders()[1]

		first := w.srv.Log().Filter(func(e zktest.Entry) bool { return e.Fate == zktest.CutBefore })[0].Path
		late := func(number string) {
			_, err := conn.Create(first+number, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
			require.NoError(w, err)
		}
		late("0000000001")
		w.line(ahead, first+"0000000001", own)
		w.set(ahead, "has the contender look again")
		w.pass(0)
		w.line(ahead, own)
		a.waits()

		w.remove(ahead)
		w.pass(0)
		a.alone()
		// One that shows up still later goes when the contender does.
		late("0000000000")
		a.release()
		w.line()
	})
}

// kazoo's Lock has one GUID for all its creates: after a reset the same name can
// come back.
func TestTrap04_NewGUIDForEachCreate(t *testing.T) {
	play(t, 3, func(w *harness) {
		w.dirs()
		conn := w.connect()
		m := w.mutex(conn)
		first := w.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: under, Nth: 1}, zktest.Cut)
		second := w.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: under, Nth: 2}, zktest.Cut)
		for range 3 { // of one value
			a := w.startCall(conn, m.Lock)
			w.pass(timeout)
			a.holds()
			w.expire(conn)
			w.pass(timeout)
			require.Error(w, a.hold.Err())
		}
		w.ran(first, second)
		names := map[string]bool{}
		for _, e := range w.srv.Log() {
			if e.Op == zktest.OpCreate && strings.HasPrefix(e.Path, node+"/") || isStampedCreate(e) {
				require.False(w, names[e.Path], "%s was used before", e.Path)
				names[e.Path] = true
			}
		}
		require.Len(w, names, 5, "two that were cut, and one for each hold")
	})
}

// CURATOR-724, CURATOR-180, kazoo #563: the lock's znode, a container, is removed
// between the making of it and the create. It is made again.
func TestTrap36_NodeGoesBeforeTheCreate(t *testing.T) {
	play(t, 1, func(w *harness) {
		conn := w.connect()
		a := w.lock(conn)
		a.release()
		swept := 0
		w.beforeCreate(func(q *zktest.Request) zktest.Verdict {
			if swept < 3 {
				swept++
				w.srv.Sweep()
			}
			return zktest.Pass(q)
		})
		for range 4 {
			a = w.lock(conn)
			a.alone()
			require.Zero(w, w.srv.Sweep(), "a contender holds it")
			a.release()
		}
		require.Equal(w, 3, swept)
		require.Contains(w, w.srv.Tree(), "one container")
	})
	t.Run("while the connection is down", func(t *testing.T) {
		play(t, 1, func(w *harness) {
			conn := w.connect()
			w.lock(conn).release()
			var once sync.Once
			w.beforeCreate(func(q *zktest.Request) zktest.Verdict {
				first := false
				once.Do(func() { first = true })
				if !first {
					return zktest.Pass(q)
				}
				w.srv.Refuse(true)
				return zktest.Cut(q)
			})
			a := w.lock(conn)
			require.Equal(w, 1, w.srv.Sweep())
			w.restore()
			a.alone()
		})
	})
	t.Run("between the hand-overs", func(t *testing.T) {
		play(t, 1, func(w *harness) {
			var last *call
			for range 3 {
				a := w.lock(w.connect())
				if last != nil {
					require.Greater(w, a.holds().Token(), last.hold.Token(), "numbers begin anew, tokens do not")
				}
				a.release()
				require.Equal(w, 1, w.srv.Sweep())
				last = a
			}
		})
	})
}

// CURATOR-18, CURATOR-3: the end comes while the create is under way, and leaves
// an orphan.
func TestTrap40_EndDuringTheCreate(t *testing.T) {
	play(t, 1, func(w *harness) {
		w.dirs()
		answer, open := w.gate()
		w.srv.After(zktest.Match{Op: zktest.OpCreate, Path: under, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			<-answer
			return zktest.Pass(q)
		})
		conn := w.connect()
		session := conn.SessionID()
		a := w.lock(conn)
		require.Len(w, w.contenders(), 1)
		a.cancel()
		w.pass(0)
		require.Error(w, a.err, "Lock returns at once")
		require.Len(w, w.contenders(), 1)
		w.pass(confirmed)
		open()
		w.pass(0)
		w.line()
		require.Equal(w, session, conn.SessionID(), "the session's end is no solution")
	})
	t.Run("the request is late", func(t *testing.T) {
		play(t, 1, func(w *harness) {
			w.dirs()
			conn := w.connect()
			w.srv.Delay(zktest.ToServer, time.Second, conn.SessionID())
			a := w.lock(conn)
			a.cancel()
			w.pass(0)
			require.Error(w, a.err)
			w.pass(2 * time.Second)
			w.srv.Heal()
			require.Len(w, w.created(), 1)
			w.pass(time.Second)
			w.line()
		})
	})
}
