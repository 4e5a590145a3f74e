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

// TestDowngrade_KeepsHoldAndAdmitsReaders checks that a downgrade keeps the hold, its token and its position in
// the queue, and admits the readers that follow directly.
func TestDowngrade_KeepsHoldAndAdmitsReaders(t *testing.T) {
	for _, layout := range []recipe.Layout{recipe.Curator, recipe.Kazoo} {
		runTest(t, 1, func(w *harness) {
			as := recipe.WithLayout(layout)
			x := w.write(w.connect(), as)
			h := x.requireHolds()
			r := w.read(w.connect(), as)
			next := w.write(w.connect(), as)
			last := w.read(w.connect(), as)
			before, token := h.Path(), h.Token()

			after := x.pathAsReader()
			x.downgrade()
			w.passTime(0)
			require.NoError(w, h.Err())
			require.Equal(w, after, h.Path())
			require.Equal(w, before[len(before)-10:], after[len(after)-10:], "the position in the queue")
			require.Equal(w, token, h.Token())
			require.Equal(w, x.conn.SessionID(), w.stat(h.Path()).EphemeralOwner)
			r.requireHolds()
			next.requireWaits()
			last.requireWaits()
			_, err := h.Multi(&zk.SetDataRequest{Path: node, Version: -1})
			require.NoError(w, err)
			require.NoError(w, x.write.Downgrade(), "second call")

			// After the downgrade, checks of the new znode renew the lease.
			w.passTime(3 * timeout)
			require.NoError(w, h.Err())
			require.Greater(w, time.Until(h.Deadline()), timeout/4)
			r.release()
			next.requireWaits()
			x.release()
			require.Greater(w, next.requireHolds().Token(), token)
			next.release()
			last.requireHolds()
		})
	}
}

// TestDowngrade_NoticesDeletionOfNewZnode checks that the hold ends immediately, and not only at the next check
// of the lease, if the new znode of a downgraded holder is deleted.
func TestDowngrade_NoticesDeletionOfNewZnode(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		x := w.write(w.connect())
		x.requireHolds()
		x.downgrade()
		w.remove(x.hold.Path())
		w.passTime(moment)
		require.ErrorIs(w, x.hold.Err(), recipes.ErrDeleted)
	})
}

// TestRWMutex_RespectsDowngradeByCurator checks that a reader and a writer wait correctly while a writer of
// Curator downgrades: Curator first creates the znode for reading, and later deletes the znode for writing.
func TestRWMutex_RespectsDowngradeByCurator(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		w.createLockNode()
		written := w.createContender("-__WRIT__")
		r, x := w.read(w.connect()), w.write(w.connect())
		read := node + "/_c_00000000-0000-4000-8000-000000000099-__READ__" + written[len(written)-10:]
		w.create(read)
		w.passTime(0)
		r.requireWaits()
		w.remove(written)
		w.passTime(timeout)
		r.requireHolds()
		r.release()
		w.passTime(timeout)
		x.requireWaits()
		w.remove(read)
		w.passTime(0)
		x.requireHolds()
	})
}

// TestDowngrade_IsAppliedOnceIfReplyIsLost checks that Downgrade is applied once if its reply is lost, and that
// it returns ErrNotHeld if the lease ends before a reply arrives.
func TestDowngrade_IsAppliedOnceIfReplyIsLost(t *testing.T) {
	forEachLoss(t, bubble.LostReplies, 1, func(w *harness, l bubble.Fault) {
		x := w.write(w.connect())
		h, session := x.requireHolds(), x.conn.SessionID()
		next := w.write(w.connect())
		w.passTime(timeout + moment)
		lost := l.Set(w.srv, zktest.Match{Op: zktest.OpMulti, Path: x.pathAsReader(), Nth: 1})
		done := bubble.Async(func() error { return bubble.Repeated(x.write.Downgrade) })
		if l.Silent {
			w.passTime(timeout)
			require.ErrorIs(w, h.Err(), recipes.ErrLeaseExpired)
			require.ErrorIs(w, <-done, recipes.ErrNotHeld)
			w.srv.Heal(session)
			w.passTime(2 * timeout)
			next.requireHolds()
			return
		}
		w.passTime(timeout)
		w.requireCalled(lost)
		require.NoError(w, <-done)
		require.NoError(w, h.Err())
		next.requireWaits()
		require.Len(w, w.contenders(), 2)
		require.Equal(w, session, x.conn.SessionID())
		x.release()
		next.requireHolds()
	})
}

// TestDowngrade_KeepsHoldWhileOutcomeIsUnknown checks that the hold continues, and that its lease is renewed
// without a gap, while the holder does not know whether the downgrade was applied. In this time, a check of the
// lease can find that the old znode does not exist.
func TestDowngrade_KeepsHoldWhileOutcomeIsUnknown(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		x := w.write(w.connect())
		h := x.requireHolds()
		w.passTime(timeout + moment)
		moved := zktest.Fail(zk.ErrSessionMoved)
		first := w.srv.After(zktest.Match{Op: zktest.OpMulti, Path: x.pathAsReader(), Nth: 1}, moved)
		again := w.srv.Before(zktest.Match{Op: zktest.OpMulti, Path: x.pathAsReader()}, func(q *zktest.Request) zktest.Verdict {
			if bubble.HasRun(first) {
				return moved(q)
			}
			return zktest.Pass(q)
		})
		done := bubble.Async(func() error { return x.write.Downgrade() })
		w.passTime(timeout / 4) // the contender sends two checks in this time
		w.requireCalled(first)
		require.Empty(w, done)
		again.Remove()
		w.passTime(timeout)
		require.NoError(w, <-done)
		require.NoError(w, h.Err())
		x.release()
	})
}

// TestDowngrade_DoesNotRejectConcurrentTransaction checks that a transaction of the holder during the downgrade
// is not rejected with ErrNotHeld.
func TestDowngrade_DoesNotRejectConcurrentTransaction(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		x := w.write(w.connect())
		h := x.requireHolds()
		hold, open := bubble.Hold(w)
		w.srv.After(zktest.Match{Op: zktest.OpMulti, Path: x.pathAsReader(), Nth: 1}, hold)
		down := bubble.Async(func() error { return x.write.Downgrade() })
		w.passTime(0)
		require.Contains(w, w.contenders()[0], "__READ__", "the downgrade was applied, and the holder does not know that yet")
		wrote := bubble.Async(func() error {
			_, err := h.Multi(&zk.SetDataRequest{Path: node, Version: -1})
			return err
		})
		w.passTime(0)
		open()
		require.NoError(w, <-down)
		require.NoError(w, <-wrote)
	})
}

// TestDowngrade_LeavesNoZnodeIfHoldEndsMeanwhile checks that a hold that ends during its downgrade leaves
// neither the old nor the new znode.
func TestDowngrade_LeavesNoZnodeIfHoldEndsMeanwhile(t *testing.T) {
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
					x.requireHolds()
					hold, open := bubble.Hold(w)
					set := w.srv.Before
					if applied {
						set = w.srv.After
					}
					set(zktest.Match{Op: zktest.OpMulti, Path: x.pathAsReader(), Nth: 1}, hold)
					down := bubble.Async(func() error { return x.write.Downgrade() })
					w.passTime(moment)
					end.do(w, x)
					w.passTime(moment)
					open()
					w.passTime(2 * timeout)
					<-down
					require.Error(w, x.hold.Err())
					w.requireContenders()
					w.write(w.connect()).requireHolds()
				})
			})
		}
	}
}

// TestDowngrade_KeepsWriteHoldIfRejected checks that the hold remains a write lock if ZooKeeper rejects the
// downgrade, and that a later downgrade succeeds.
func TestDowngrade_KeepsWriteHoldIfRejected(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		x := w.write(w.connect())
		h := x.requireHolds()
		_, err := w.operator.SetACL(node, zk.WorldACL(zk.PermAll&^zk.PermCreate), -1)
		require.NoError(w, err)
		require.ErrorIs(w, x.write.Downgrade(), recipes.ErrPermission)
		w.passTime(timeout)
		require.NoError(w, h.Err())
		x.requireOnlyZnode()
		_, err = w.operator.SetACL(node, zk.WorldACL(zk.PermAll), -1)
		require.NoError(w, err)
		require.NoError(w, x.write.Downgrade())
		x.release()
		require.NoError(w, x.write.Downgrade(), "the downgrade was already complete")
	})
}

// TestDowngrade_WatchesOldZnodeAfterRejection checks that the holder still watches its old znode after a
// rejected downgrade: the hold ends immediately, and not only at the next check of the lease, if that znode is
// deleted.
func TestDowngrade_WatchesOldZnodeAfterRejection(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		x := w.write(w.connect())
		h := x.requireHolds()
		w.passTime(timeout + moment) // an instant between two checks
		_, err := w.operator.SetACL(node, zk.WorldACL(zk.PermAll&^zk.PermCreate), -1)
		require.NoError(w, err)
		require.ErrorIs(w, x.write.Downgrade(), recipes.ErrPermission)
		w.remove(h.Path())
		w.passTime(0)
		require.ErrorIs(w, h.Err(), recipes.ErrDeleted)
	})
}

// TestDowngrade_FailsImmediatelyAfterRelease checks that Downgrade of a hold that has ended returns ErrNotHeld
// without waiting.
func TestDowngrade_FailsImmediatelyAfterRelease(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		x := w.write(w.connect())
		x.release()
		require.ErrorIs(w, x.write.Downgrade(), recipes.ErrNotHeld)

		// Downgrade returns immediately, although the removal of the znode takes long.
		y := w.write(w.connect())
		w.isolate(y.conn)
		go y.hold.Release()
		w.passTime(0)
		w.requireElapsed(0, func() { require.ErrorIs(w, y.write.Downgrade(), recipes.ErrNotHeld) })
		w.reconnect(y.conn)
		w.passTime(timeout)
	})
}

// TestDowngrade_ContinuesAfterTimeLimitOfCall checks that the downgrade continues after the call that has
// started it has reached its time limit, and that a concurrent call returns the result.
func TestDowngrade_ContinuesAfterTimeLimitOfCall(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		x := w.write(w.connect())
		x.requireHolds()
		// The client retries after this error.
		slow := w.srv.Before(zktest.Match{Op: zktest.OpMulti, Path: x.pathAsReader()}, zktest.Fail(zk.ErrSessionMoved))
		first := bubble.Async(x.write.Downgrade)
		w.passTime(limit.Confirm / 2)
		second := bubble.Async(x.write.Downgrade)
		require.ErrorIs(w, <-first, recipes.ErrUnconfirmed)
		slow.Remove()
		require.NoError(w, <-second)
		require.NoError(w, x.write.Downgrade())
		require.NoError(w, x.hold.Err())
	})
}

// TestDowngrade_LeavesNoZnodeIfRetryIsRejected checks that the new znode of a downgrade does not remain if the
// downgrade is applied, its reply is lost, and ZooKeeper rejects the retry. The znode would block writers.
func TestDowngrade_LeavesNoZnodeIfRetryIsRejected(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		x := w.write(w.connect())
		h, session := x.requireHolds(), x.conn.SessionID()
		w.passTime(timeout + moment)
		match := zktest.Match{Op: zktest.OpMulti, Path: x.pathAsReader(), Nth: 1}
		lost := w.srv.After(match, zktest.Fail(zk.ErrSessionMoved))
		match.Nth = 2
		refused := w.srv.Before(match, zktest.Fail(zk.ErrNoAuth))
		require.ErrorIs(w, x.write.Downgrade(), recipes.ErrPermission)
		w.requireCalled(lost, refused)
		w.passTime(timeout)
		require.ErrorIs(w, h.Err(), recipes.ErrDeleted)
		require.NoError(w, h.Release())
		w.requireContenders()
		require.Equal(w, session, x.conn.SessionID(), "the library must not end the session to delete the znode")
		w.write(w.connect()).requireHolds()
	})
}

// TestDowngrade_KeepsPositionInQueue checks that a downgrade keeps the position in the queue, so that no
// waiting writer acquires the lock before the former writer releases its read lock (CURATOR-621, CURATOR-276).
// Scenario 48 of docs/traps.md.
func TestDowngrade_KeepsPositionInQueue(t *testing.T) {
	runTest(t, 3, func(w *harness) {
		x := w.write(w.connect())
		between := w.write(w.connect())
		behind := w.read(w.connect())
		x.downgrade()
		w.passTime(timeout)
		between.requireWaits()
		behind.requireWaits()
		// The position is kept even if all connections break.
		for _, c := range []*zk.Conn{between.conn, x.conn, behind.conn} {
			bubble.EachServer(w.ensemble, func(s *zktest.Server) { s.DropConnections(c.SessionID()) })
			w.passTime(timeout / 4)
		}
		x.requireHolds()
		between.requireWaits()
		behind.requireWaits()
		x.release()
		between.requireHolds()
		behind.requireWaits()
		between.release()
		behind.requireHolds()
	})
}
