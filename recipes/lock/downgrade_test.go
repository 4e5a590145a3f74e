package lock

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestDowngrade fails if a downgrade ends the hold, changes its position, or does not admit the
// readers that follow.
func TestDowngrade(t *testing.T) {
	for _, layout := range []recipe.Layout{recipe.Curator, recipe.Kazoo} {
		runTest(t, 1, func(w *harness) {
			as := recipe.WithLayout(layout)
			x := w.write(w.connect(), as)
			h := x.holds()
			r := w.read(w.connect(), as)
			next := w.write(w.connect(), as)
			last := w.read(w.connect(), as)
			before, token := h.Path(), h.Token()

			after := x.pathAsReader()
			x.downgrade()
			w.pass(0)
			require.NoError(w, h.Err())
			require.Equal(w, after, h.Path())
			require.Equal(w, before[len(before)-10:], after[len(after)-10:], "the position in the queue")
			require.Equal(w, token, h.Token())
			require.Equal(w, x.conn.SessionID(), w.stat(h.Path()).EphemeralOwner)
			r.holds()
			next.waits()
			last.waits()
			_, err := h.Multi(&zk.SetDataRequest{Path: node, Version: -1})
			require.NoError(w, err)
			require.NoError(w, x.write.Downgrade(), "again")

			// The lease is renewed by checks of the new znode, and the loss of the session is
			// reported.
			w.pass(3 * timeout)
			require.NoError(w, h.Err())
			require.Greater(w, time.Until(h.Deadline()), timeout/4)
			r.release()
			next.waits()
			x.release()
			require.Greater(w, next.holds().Token(), token)
			next.release()
			last.holds()
		})
	}
}

// The deletion of the new znode is reported immediately, not only by the next check.
func TestDowngrade_NewZnodeIsDeleted(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		x := w.write(w.connect())
		x.holds()
		x.downgrade()
		w.remove(x.hold.Path())
		w.pass(moment)
		require.ErrorIs(w, x.hold.Err(), recipes.ErrDeleted)
	})
}

// Curator first creates the znode for reading, and later deletes that for writing.
func TestDowngrade_ByCurator(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		w.createLockNode()
		written := w.createContender("-__WRIT__")
		r, x := w.read(w.connect()), w.write(w.connect())
		read := node + "/_c_00000000-0000-4000-8000-000000000099-__READ__" + written[len(written)-10:]
		w.create(read)
		w.pass(0)
		r.waits()
		w.remove(written)
		w.pass(timeout)
		r.holds()
		r.release()
		w.pass(timeout)
		x.waits()
		w.remove(read)
		w.pass(0)
		x.holds()
	})
}

// TestDowngrade_ReplyLost fails if a Downgrade whose reply was lost is applied twice although its retry has the same
// name, or if it succeeds after the lease has ended.
func TestDowngrade_ReplyLost(t *testing.T) {
	forEachLoss(t, bubble.LostReplies, 1, func(w *harness, l bubble.Fault) {
		x := w.write(w.connect())
		h, session := x.holds(), x.conn.SessionID()
		next := w.write(w.connect())
		w.pass(timeout + moment)
		lost := l.Set(w.srv, zktest.Match{Op: zktest.OpMulti, Path: x.pathAsReader(), Nth: 1})
		done := bubble.Async(func() error { return bubble.Repeated(x.write.Downgrade) })
		if l.Silent {
			w.pass(timeout)
			require.ErrorIs(w, h.Err(), recipes.ErrLeaseExpired)
			require.ErrorIs(w, <-done, recipes.ErrNotHeld)
			w.srv.Heal(session)
			w.pass(2 * timeout)
			next.holds()
			return
		}
		w.pass(timeout)
		w.ran(lost)
		require.NoError(w, <-done)
		require.NoError(w, h.Err())
		next.waits()
		require.Len(w, w.contenders(), 2)
		require.Equal(w, session, x.conn.SessionID())
		x.release()
		next.holds()
	})
}

// A check does not find the old znode before it is known that the new znode exists: the hold does
// not end, and its lease has no gap.
func TestDowngrade_ReplyLostForLong(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		x := w.write(w.connect())
		h := x.holds()
		w.pass(timeout + moment)
		moved := zktest.Fail(zk.ErrSessionMoved)
		first := w.srv.After(zktest.Match{Op: zktest.OpMulti, Path: x.pathAsReader(), Nth: 1}, moved)
		again := w.srv.Before(zktest.Match{Op: zktest.OpMulti, Path: x.pathAsReader()}, func(q *zktest.Request) zktest.Verdict {
			if bubble.HasRun(first) {
				return moved(q)
			}
			return zktest.Pass(q)
		})
		done := bubble.Async(func() error { return x.write.Downgrade() })
		w.pass(timeout / 4) // two checks are sent in this time
		w.ran(first)
		require.Empty(w, done)
		again.Remove()
		w.pass(timeout)
		require.NoError(w, <-done)
		require.NoError(w, h.Err())
		x.release()
	})
}

// A transaction of the holder during the downgrade is not rejected as that of a former holder.
func TestDowngrade_DuringTransaction(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		x := w.write(w.connect())
		h := x.holds()
		hold, open := bubble.Hold(w)
		w.srv.After(zktest.Match{Op: zktest.OpMulti, Path: x.pathAsReader(), Nth: 1}, hold)
		down := bubble.Async(func() error { return x.write.Downgrade() })
		w.pass(0)
		require.Contains(w, w.contenders()[0], "__READ__", "it was applied, and the holder does not know it")
		wrote := bubble.Async(func() error {
			_, err := h.Multi(&zk.SetDataRequest{Path: node, Version: -1})
			return err
		})
		w.pass(0)
		open()
		require.NoError(w, <-down)
		require.NoError(w, <-wrote)
	})
}

// If the hold ends during the downgrade, no znode is left.
func TestDowngrade_HoldEnds(t *testing.T) {
	for _, end := range []struct {
		name string
		do   func(w *harness, x *writer)
	}{
		{"release", func(w *harness, x *writer) { go x.hold.Release() }},
		{"znode deleted", func(w *harness, x *writer) {
			w.allowOverlap = true
			for _, p := range w.contenders() {
				w.remove(p)
			}
		}},
		{"session expired", func(w *harness, x *writer) { w.expire(x.conn) }},
		{"connection closed", func(w *harness, x *writer) { go x.conn.Close() }},
	} {
		for _, applied := range []bool{true, false} {
			t.Run(end.name, func(t *testing.T) {
				runTest(t, 3, func(w *harness) {
					x := w.write(w.connect())
					x.holds()
					hold, open := bubble.Hold(w)
					set := w.srv.Before
					if applied {
						set = w.srv.After
					}
					set(zktest.Match{Op: zktest.OpMulti, Path: x.pathAsReader(), Nth: 1}, hold)
					down := bubble.Async(func() error { return x.write.Downgrade() })
					w.pass(moment)
					end.do(w, x)
					w.pass(moment)
					open()
					w.pass(2 * timeout)
					<-down
					require.Error(w, x.hold.Err())
					w.requireContenders()
					w.write(w.connect()).holds()
				})
			})
		}
	}
}

// If ZooKeeper rejects the downgrade, the hold is unchanged.
func TestDowngrade_Rejected(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		x := w.write(w.connect())
		h := x.holds()
		_, err := w.operator.SetACL(node, zk.WorldACL(zk.PermAll&^zk.PermCreate), -1)
		require.NoError(w, err)
		require.ErrorIs(w, x.write.Downgrade(), recipes.ErrPermission)
		w.pass(timeout)
		require.NoError(w, h.Err())
		x.requireOnlyZnode()
		_, err = w.operator.SetACL(node, zk.WorldACL(zk.PermAll), -1)
		require.NoError(w, err)
		require.NoError(w, x.write.Downgrade())
		x.release()
		require.NoError(w, x.write.Downgrade(), "it was done")
	})
}

// A rejected downgrade must not lose the watch on the znode, so that the deletion of the znode is noticed
// only by the next check of the lease.
func TestDowngrade_RejectedAndDeleted(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		x := w.write(w.connect())
		h := x.holds()
		w.pass(timeout + moment) // between two checks
		_, err := w.operator.SetACL(node, zk.WorldACL(zk.PermAll&^zk.PermCreate), -1)
		require.NoError(w, err)
		require.ErrorIs(w, x.write.Downgrade(), recipes.ErrPermission)
		w.remove(h.Path())
		w.pass(0)
		require.ErrorIs(w, h.Err(), recipes.ErrDeleted)
	})
}

// TestDowngrade_LockIsLost fails if Downgrade of a lost hold waits, or does not return ErrNotHeld.
func TestDowngrade_LockIsLost(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		x := w.write(w.connect())
		x.release()
		require.ErrorIs(w, x.write.Downgrade(), recipes.ErrNotHeld)

		// Immediately, however long the removal of the znode takes.
		y := w.write(w.connect())
		w.isolate(y.conn)
		go y.hold.Release()
		w.pass(0)
		w.elapsed(0, func() { require.ErrorIs(w, y.write.Downgrade(), recipes.ErrNotHeld) })
		w.reconnect(y.conn)
		w.pass(timeout)
	})
}

// Several goroutines may call Downgrade. A call that waits too long does not end the downgrade.
func TestDowngrade_ConcurrentCalls(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		x := w.write(w.connect())
		x.holds()
		slow := w.srv.Before(zktest.Match{Op: zktest.OpMulti, Path: x.pathAsReader()}, zktest.Fail(zk.ErrSessionMoved)) // it is retried
		first := bubble.Async(x.write.Downgrade)
		w.pass(limit.Confirm / 2)
		second := bubble.Async(x.write.Downgrade)
		require.ErrorIs(w, <-first, recipes.ErrUnconfirmed)
		slow.Remove()
		require.NoError(w, <-second)
		require.NoError(w, x.write.Downgrade())
		require.NoError(w, x.hold.Err())
	})
}

// The downgrade is applied, its reply is lost, and ZooKeeper rejects the retry: the new znode must
// not remain and block writers.
func TestDowngrade_ReplyLostAndRetryRejected(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		x := w.write(w.connect())
		h, session := x.holds(), x.conn.SessionID()
		w.pass(timeout + moment)
		match := zktest.Match{Op: zktest.OpMulti, Path: x.pathAsReader(), Nth: 1}
		lost := w.srv.After(match, zktest.Fail(zk.ErrSessionMoved))
		match.Nth = 2
		refused := w.srv.Before(match, zktest.Fail(zk.ErrNoAuth))
		require.ErrorIs(w, x.write.Downgrade(), recipes.ErrPermission)
		w.ran(lost, refused)
		w.pass(timeout)
		require.ErrorIs(w, h.Err(), recipes.ErrDeleted)
		require.NoError(w, h.Release())
		w.requireContenders()
		require.Equal(w, session, x.conn.SessionID(), "the session's end is no solution")
		w.write(w.connect()).holds()
	})
}

// TestTrap48_DowngradeKeepsPosition fails if a downgrade loses the position in the queue, so that a
// waiting writer acquires the lock before the reader that the holder has become (CURATOR-621,
// CURATOR-276).
func TestTrap48_DowngradeKeepsPosition(t *testing.T) {
	runTest(t, 3, func(w *harness) {
		x := w.write(w.connect())
		between := w.write(w.connect())
		behind := w.read(w.connect())
		x.downgrade()
		w.pass(timeout)
		between.waits()
		behind.waits()
		// The position is kept even after the connections were down.
		for _, c := range []*zk.Conn{between.conn, x.conn, behind.conn} {
			bubble.EachServer(w.ensemble, func(s *zktest.Server) { s.DropConnections(c.SessionID()) })
			w.pass(timeout / 4)
		}
		x.holds()
		between.waits()
		behind.waits()
		x.release()
		between.holds()
		behind.waits()
		between.release()
		behind.holds()
	})
}
