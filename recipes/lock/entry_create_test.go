package lock

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/testenv/lostreply"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// CURATOR-45: a create is applied and its reply is lost. The orphaned znode would block the queue.
func TestTrap01_CreateReplyLost(t *testing.T) {
	forEachLoss(t, lostreply.ConnectionLost, 1, testCreateReplyLost)
}

// ZOOKEEPER-2886: the outcome is also unknown if a server reports that the session has moved.
func TestTrap10_SessionMovedDuringCreate(t *testing.T) {
	forEachLoss(t, lostreply.SessionMoved, 1, testCreateReplyLost)
}

func testCreateReplyLost(w *harness, l lostreply.Fault) {
	holder, conn := w.lock(w.connect()), w.connect()
	session := conn.SessionID()
	lost := l.Set(w.srv, zktest.Match{Op: zktest.OpCreate, Path: under, Nth: 1})
	a := w.lock(conn)
	w.pass(timeout)
	w.ran(lost)
	a.waits()
	require.Len(w, w.contenders(), 2)
	if l.Applied {
		require.Len(w, w.created(), 2, "the znode of the first create is used")
	}
	holder.release()
	a.requireOnlyZnode()
	require.Equal(w, session, conn.SessionID(), "the znode must be found in the same session")
	a.release()
}

// CURATOR-79, CURATOR-62: the caller gives up while the outcome is unknown, and the orphaned znode
// is not searched for.
func TestTrap01_CallerGivesUp(t *testing.T) {
	forEachLoss(t, lostreply.All, 1, func(w *harness, l lostreply.Fault) {
		conn := w.connect()
		session := conn.SessionID()
		lost := l.Set(w.srv, zktest.Match{Op: zktest.OpCreate, Path: under, Nth: 1})
		w.createLockNode()
		a := w.lock(conn)
		w.ran(lost)
		a.cancel()
		w.pass(0)
		require.Error(w, a.err)
		w.pass(timeout)
		w.requireContenders()
		require.Equal(w, session, conn.SessionID(), "the session must not have ended")
	})
}

// CURATOR-498: the search after a create without a reply finds a znode of another session, which
// may have expired, and takes it for that of the contender.
func TestTrap02_ZnodeOfOtherSession(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		w.createLockNode()
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
		a.requireOnlyZnode()
	})
}

// CURATOR-498: the session expires between the create and the search.
func TestTrap02_SessionExpiresBeforeSearch(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		w.createLockNode()
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
		a.requireOnlyZnode()
		require.Len(w, w.created(), 2)
	})
}

// ZOOKEEPER-1675: the search is answered by a server that lags behind, and does not find the
// created znode.
func TestTrap03_SearchOnLaggingServer(t *testing.T) {
	runTest(t, 3, func(w *harness) {
		w.createLockNode()
		lagging, conn := w.ensemble.Server(1), w.connect()
		lagging.Lag()
		lost := w.srv.After(zktest.Match{Op: zktest.OpCreate, Path: under, Nth: 1}, zktest.Cut)
		a := w.lock(conn)
		w.ran(lost)
		require.Equal(w, lagging.Name(), conn.Server())
		require.NotContains(w, lagging.Tree(), "-lock-")
		w.pass(timeout / 4)
		a.waits() // the contender cannot know yet that it is the head of the queue
		lagging.Heal()
		w.pass(0)
		a.requireOnlyZnode()
		require.Len(w, w.created(), 1)
	})
}

// A znode that the search has not found appears later, ahead of the contender's znode. The
// contender would wait for itself.
func TestTrap03_OrphanedZnodeAppearsLate(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		w.createLockNode()
		conn := w.connect()
		ahead := w.createContender("-lock-")
		w.remove(w.createContender("-lock-")) // leaves a gap in the sequence numbers
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
		w.requireContenders(ahead, first+"0000000001", own)
		w.set(ahead, "makes the contender list the queue")
		w.pass(0)
		w.requireContenders(ahead, own)
		a.waits()

		w.remove(ahead)
		w.pass(0)
		a.requireOnlyZnode()
		// An orphaned znode that appears even later is removed when the contender leaves.
		late("0000000000")
		a.release()
		w.requireContenders()
	})
}

// kazoo's Lock uses one GUID for all its creates: after the numbers restart, a name can be used
// again.
func TestTrap04_NewGUIDForEachCreate(t *testing.T) {
	runTest(t, 3, func(w *harness) {
		w.createLockNode()
		conn := w.connect()
		m := w.mutex(conn)
		first := w.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: under, Nth: 1}, zktest.Cut)
		second := w.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: under, Nth: 2}, zktest.Cut)
		for range 3 { // of one Mutex
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
		require.Len(w, names, 5, "two creates whose replies were lost, and one for each hold")
	})
}

// CURATOR-724, CURATOR-180, kazoo #563: the lock's znode, a container, is removed after it was
// created and before the create of the contender's znode. It is created again.
func TestTrap36_QueueRemovedBeforeCreate(t *testing.T) {
	runTest(t, 1, func(w *harness) {
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
			a.requireOnlyZnode()
			require.Zero(w, w.srv.Sweep(), "the container is not empty")
			a.release()
		}
		require.Equal(w, 3, swept)
		require.Contains(w, w.srv.Tree(), "one container")
	})
	t.Run("while the connection is down", func(t *testing.T) {
		runTest(t, 1, func(w *harness) {
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
			a.requireOnlyZnode()
		})
	})
	t.Run("between two holds", func(t *testing.T) {
		runTest(t, 1, func(w *harness) {
			var last *call
			for range 3 {
				a := w.lock(w.connect())
				if last != nil {
					require.Greater(w, a.holds().Token(), last.hold.Token(), "sequence numbers restart, tokens increase")
				}
				a.release()
				require.Equal(w, 1, w.srv.Sweep())
				last = a
			}
		})
	})
}

// CURATOR-18, CURATOR-3: Lock is cancelled while the create is in flight, which leaves an orphaned
// znode.
func TestTrap40_CancelledDuringCreate(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		w.createLockNode()
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
		require.Error(w, a.err, "Lock returns immediately")
		require.Len(w, w.contenders(), 1)
		w.pass(confirmed)
		open()
		w.pass(0)
		w.requireContenders()
		require.Equal(w, session, conn.SessionID(), "the session must not have ended")
	})
	t.Run("the request is late", func(t *testing.T) {
		runTest(t, 1, func(w *harness) {
			w.createLockNode()
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
			w.requireContenders()
		})
	})
}
