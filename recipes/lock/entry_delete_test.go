package lock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/testenv/lostreply"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// CURATOR-202, CURATOR-678, kazoo #732: the delete fails with the connection, the session stays
// alive, and the remaining znode blocks all later contenders.
func TestTrap05_DeleteReplyLost(t *testing.T) {
	forEachLoss(t, lostreply.ConnectionLost, 1, testDeleteReplyLost)
}

// ZOOKEEPER-2886: the outcome is also unknown if a server reports that the session has moved.
func TestTrap10_SessionMovedDuringDelete(t *testing.T) {
	forEachLoss(t, lostreply.SessionMoved, 1, testDeleteReplyLost)
}

func testDeleteReplyLost(w *harness, l lostreply.Fault) {
	a, next := w.lock(w.connect()), w.lock(w.connect())
	h, session := a.holds(), a.conn.SessionID()
	lost := l.Set(w.srv, zktest.Match{Op: zktest.OpDelete, Path: under, Nth: 1})
	released := async(func() error { return bubble.Repeated(h.Release) })
	w.pass(0)
	require.ErrorIs(w, h.Err(), recipes.ErrReleased)
	w.pass(timeout)
	w.ran(lost)
	require.NoError(w, <-released)
	next.requireOnlyZnode()
	require.Equal(w, session, a.conn.SessionID(), "the session must not have ended")
}

// Trap 5 for a contender that waits.
func TestTrap05_DeleteReplyLostByWaiter(t *testing.T) {
	forEachLoss(t, lostreply.All, 1, func(w *harness, l lostreply.Fault) {
		holder, a := w.lock(w.connect()), w.lock(w.connect())
		last := w.lock(w.connect())
		session := a.conn.SessionID()
		lost := l.Set(w.srv, zktest.Match{Op: zktest.OpDelete, Session: session, Path: under, Nth: 1})
		a.cancel()
		w.pass(timeout)
		require.Error(w, a.failed())
		w.ran(lost)
		require.Len(w, w.contenders(), 2)
		last.waits()
		require.Equal(w, session, a.conn.SessionID(), "the session must not have ended")
		holder.release()
		last.holds()
	})
}

// CURATOR-202: the network discards all packets from before the delete on.
func TestTrap05_DeleteIntoBlackHole(t *testing.T) {
	for _, end := range []struct {
		name string
		heal time.Duration
	}{
		{"until the client dials again", limit.Confirm},
		{"until the session has ended", 2 * timeout},
	} {
		t.Run(end.name, func(t *testing.T) {
			runTest(t, 1, func(w *harness) {
				a, next := w.lock(w.connect()), w.lock(w.connect())
				w.isolate(a.conn)
				w.elapsed(limit.Confirm, func() { require.ErrorIs(w, a.hold.Release(), recipes.ErrUnconfirmed) })
				w.pass(end.heal - limit.Confirm)
				w.srv.Refuse(false)
				w.pass(timeout)
				require.NoError(w, a.hold.Release(), "now it is confirmed")
				next.holds()
			})
		})
	}
}

// vitess #15756, etcd #22123: the cleanup after a cancellation uses the cancelled context, and has
// no effect.
func TestTrap06_CleanupAfterContextIsDone(t *testing.T) {
	for _, state := range []struct {
		name  string
		spoil func(w *harness, conn *zk.Conn) (repair func())
	}{
		{"connected", func(*harness, *zk.Conn) func() { return func() {} }},
		{"disconnected", func(w *harness, conn *zk.Conn) func() {
			w.cut(conn)
			return w.restore
		}},
		{"silent", func(w *harness, conn *zk.Conn) func() {
			w.srv.Blackhole(zktest.BothWays, conn.SessionID())
			return func() { w.srv.Heal(conn.SessionID()) }
		}},
	} {
		t.Run("waiting, "+state.name, func(t *testing.T) {
			runTest(t, 1, func(w *harness) {
				holder, a := w.lock(w.connect()), w.lock(w.connect())
				session := a.conn.SessionID()
				repair := state.spoil(w, a.conn)
				a.cancel()
				w.pass(0)
				require.ErrorIs(w, a.failed(), context.Canceled)
				repair()
				w.pass(moment)
				w.requireContenders(holder.hold.Path())
				require.Equal(w, session, a.conn.SessionID(), "the session must not have ended")
			})
		})
		t.Run("releasing, "+state.name, func(t *testing.T) {
			runTest(t, 1, func(w *harness) {
				a := w.lock(w.connect())
				session := a.conn.SessionID()
				repair := state.spoil(w, a.conn)
				err := a.hold.Release()
				if state.name == "connected" {
					require.NoError(w, err)
				} else {
					require.ErrorIs(w, err, recipes.ErrUnconfirmed)
				}
				require.ErrorIs(w, a.hold.Err(), recipes.ErrReleased)
				w.pass(moment)
				repair()
				w.pass(moment)
				w.requireContenders()
				require.NoError(w, a.hold.Release())
				require.Equal(w, session, a.conn.SessionID(), "the session must not have ended")
			})
		})
	}
}

// CURATOR-559: nested loops of retries. Here the delete is sent once for each connection.
func TestTrap09_OneLayerOfRetries(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		a, next := w.lock(w.connect()), w.lock(w.connect())
		lost := w.srv.Before(zktest.Match{Op: zktest.OpDelete, Path: under}, zktest.Cut)
		w.srv.ResetLog()
		w.elapsed(limit.Confirm, func() { require.ErrorIs(w, a.hold.Release(), recipes.ErrUnconfirmed) })
		w.pass(time.Minute)
		log := w.srv.Log().Session(a.conn.SessionID())
		require.InDelta(w, log.Count(zktest.OpConnect), log.Count(zktest.OpDelete), 1)
		require.Greater(w, log.Count(zktest.OpDelete), 30, "the removal is retried")
		lost.Remove()
		w.pass(2 * time.Second)
		require.NoError(w, a.hold.Release())
		next.holds()
	})
}

// etcd #22082, #22123: a late release deletes the znode of a newer hold.
func TestTrap44_StaleRelease(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		// The delete of the first hold hangs while the second contender joins on the same
		// connection, and continues when the second one holds the lock.
		conn := w.connect()
		old := w.lock(conn)
		lost := w.srv.Before(zktest.Match{Op: zktest.OpDelete, Path: under, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			w.srv.Refuse(true)
			return zktest.Cut(q)
		})
		require.ErrorIs(w, old.hold.Release(), recipes.ErrUnconfirmed)
		w.ran(lost)
		w.remove(old.hold.Path())
		w.srv.Refuse(false)
		a := w.lock(conn)
		w.pass(time.Second + moment)
		h := a.holds()
		for range 3 {
			require.NoError(w, old.hold.Release())
		}
		_, err := old.hold.Multi()
		require.ErrorIs(w, err, recipes.ErrNotHeld)
		w.pass(timeout)
		require.NoError(w, h.Err())
		a.requireOnlyZnode()
	})
}

// In kazoo and in Curator's MultiLock, the timeout applies to each wait separately. Here the
// deadline of the context applies to the whole call.
func TestTrap46_OneDeadlineForWholeCall(t *testing.T) {
	const limit = 3 * time.Second
	for name, call := range map[string]func(ctx context.Context, w *harness, conn *zk.Conn) error{
		"Lock": func(ctx context.Context, w *harness, conn *zk.Conn) error {
			m, err := NewMutex(conn, "/a/b/c/d")
			require.NoError(w, err)
			_, err = m.Lock(ctx)
			return err
		},
		"TryLock": func(ctx context.Context, w *harness, conn *zk.Conn) error {
			m, err := NewMutex(conn, "/a/b/c/d")
			require.NoError(w, err)
			_, err = m.TryLock(ctx)
			return err
		},
		"RLock": func(ctx context.Context, w *harness, conn *zk.Conn) error {
			m, err := NewRWMutex(conn, "/a/b/c/d")
			require.NoError(w, err)
			_, err = m.RLock(ctx)
			return err
		},
		"Multi": func(ctx context.Context, w *harness, conn *zk.Conn) error {
			_, err := w.multi(conn, "a", "b", "c").Lock(ctx)
			return err
		},
		"Contenders": func(ctx context.Context, w *harness, conn *zk.Conn) error {
			w.srv.Delay(zktest.ToServer, 2*time.Second, conn.SessionID())
			_, err := w.mutex(conn).Contenders(ctx)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			runTest(t, 1, func(w *harness) {
				w.createLockNode()
				for _, name := range []string{"a", "b", "c"} {
					w.create("/locks/" + name)
				}
				w.createContender("-lock-")
				conn := w.connect()
				w.srv.Delay(zktest.ToServer, time.Second, conn.SessionID())
				ctx, cancel := context.WithTimeout(w.Context(), limit)
				defer cancel()
				w.elapsed(limit, func() {
					err := call(ctx, w, conn)
					require.True(w, errors.Is(err, context.DeadlineExceeded), "%v", err)
				})
				w.srv.Heal()
				w.pass(timeout)
				require.Len(w, w.contenders(), 1)
				require.NoError(w, w.operator.Delete(w.contenders()[0], -1))
				require.Equal(w, 0, countEphemerals(w, conn))
			})
		})
	}
}

// countEphemerals returns the number of znodes of a session.
func countEphemerals(w *harness, conn *zk.Conn) int { return len(w.session(conn).Ephemerals) }
