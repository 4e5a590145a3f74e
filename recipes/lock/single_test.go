package lock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const singlePath = "/app/single-lock"

func (w *harness) single(conn *zk.Conn, data string, options ...Option) *Single {
	w.Helper()
	s, err := NewSingle(conn, singlePath, []byte(data), withTimeout(options)...)
	require.NoError(w, err)
	return s
}

// lockSingle calls Lock of a Single, and waits until all goroutines are blocked.
func (w *harness) lockSingle(conn *zk.Conn, data string) *call {
	w.Helper()
	a := w.startCall(conn, w.single(conn, data).Lock)
	w.passTime(0)
	return a
}

// handWritten is a client that implements the lock without this library, as mysync and kvrocks-controller do.
type handWritten struct {
	w    *harness
	conn *zk.Conn
	data string
}

// tryLock creates the znode, and reports whether the client has acquired the lock.
func (c handWritten) tryLock() bool {
	c.w.Helper()
	_, err := c.conn.Create(singlePath, []byte(c.data), zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	if !errors.Is(err, zk.ErrNodeExists) {
		require.NoError(c.w, err)
	}
	return err == nil
}

// unlock deletes the znode, which must contain the client's data.
func (c handWritten) unlock() {
	c.w.Helper()
	data, stat, err := c.conn.Get(singlePath)
	require.NoError(c.w, err)
	require.Equal(c.w, c.data, string(data))
	require.NoError(c.w, c.conn.Delete(singlePath, stat.Version))
	c.w.passTime(0)
}

// runSingle runs f in a bubble with the given number of servers. The parent of the lock's znode exists.
func runSingle(t *testing.T, servers int, f func(w *harness)) {
	t.Helper()
	runTest(t, servers, func(w *harness) {
		w.create("/app")
		f(w)
	})
}

// TestSingle_ExcludesHandWrittenPrograms checks that a lock that hand-written programs and programs with Single
// share has one holder at a time, and that each kind of program reads the data of the other.
func TestSingle_ExcludesHandWrittenPrograms(t *testing.T) {
	runSingle(t, 1, func(w *harness) {
		const owner = `{"hostname":"host-1","pid":7}`
		old := handWritten{w, w.connect(), `{"hostname":"host-0","pid":1}`}
		require.True(w, old.tryLock())
		conn := w.connect()
		s := w.single(conn, owner)
		_, err := s.TryLock(w.Context())
		require.ErrorIs(w, err, ErrHeld)
		holder, err := s.Holder(w.Context())
		require.NoError(w, err)
		require.Equal(w, Contender{Path: singlePath, Name: old.data, Token: w.stat(singlePath).Czxid, Holds: true}, holder)

		a, b := w.lockSingle(conn, owner), w.lockSingle(w.connect(), "b")
		w.passTime(timeout)
		w.requireWaiting(a, b)
		old.unlock()
		if b.hasReturned() {
			a, b = b, a
		}
		b.requireWaits()
		a.requireOnlyZnode()
		require.Equal(w, singlePath, a.requireHolds().Path())
		require.False(w, old.tryLock())
		w.passTime(time.Minute)
		a.release()
		b.requireOnlyZnode()
		b.release()
		holder, err = s.Holder(w.Context())
		require.NoError(w, err)
		require.Zero(w, holder)
		require.True(w, old.tryLock())
		old.unlock()
	})
}

// TestSingle_NextClientAcquiresAfterSessionExpiry checks that the next client acquires the lock when the
// session of the holder expires, whether the holder and the next client use Single or are hand-written.
func TestSingle_NextClientAcquiresAfterSessionExpiry(t *testing.T) {
	runSingle(t, 1, func(w *harness) {
		old := handWritten{w, w.connect(), "old"}
		require.True(w, old.tryLock())
		a := w.lockSingle(w.connect(), "a")
		w.passTime(timeout)
		a.requireWaits()
		w.expire(old.conn)
		w.passTime(0)
		h := a.requireHolds()
		w.expire(a.conn)
		next := handWritten{w, w.connect(), "next"}
		require.True(w, next.tryLock())
		w.passTime(timeout)
		require.Error(w, h.Err())
		require.NoError(w, h.Release())
		next.unlock()
	})
}

// TestSingle_HoldEndsBeforeSessionExpires checks that a hold ends before another client can acquire the lock if
// the holder's server is separated from the other servers, although it still answers pings and reads of the
// holder.
func TestSingle_HoldEndsBeforeSessionExpires(t *testing.T) {
	runSingle(t, 3, func(w *harness) {
		a := w.lockSingle(w.connectTo(1), "a")
		w.passTime(timeout)
		h := a.requireHolds()
		ended := doneAt(h)
		next := handWritten{w, w.connectTo(0), "next"}
		w.ensemble.Server(1).Partition()
		for end := time.Now().Add(3 * timeout); !next.tryLock(); w.passTime(10 * time.Millisecond) {
			require.True(w, time.Now().Before(end))
		}
		require.True(w, (<-ended).Before(time.Now()))
		require.ErrorIs(w, h.Err(), recipes.ErrLeaseExpired)
		w.ensemble.Server(1).Heal()
		w.passTime(timeout)
		next.unlock()
	})
}

// TestSingle_RecognizesOwnZnodeIfReplyIsLost checks that a client whose create was applied although its reply
// was lost recognizes the znode as its own.
// Scenario 1 of docs/traps.md.
func TestSingle_RecognizesOwnZnodeIfReplyIsLost(t *testing.T) {
	for _, l := range bubble.LostReplies {
		t.Run(l.Name, func(t *testing.T) {
			runSingle(t, 1, func(w *harness) {
				hook := l.Set(w.srv, zktest.Match{Op: zktest.OpCreate, Path: singlePath, Nth: 1})
				a := w.lockSingle(w.connect(), "owner")
				w.passTime(3 * timeout)
				w.requireCalled(hook)
				a.requireOnlyZnode()
				a.release()
			})
		})
	}
}

// TestSingle_DoesNotAdoptZnodeWithSameData checks that a client whose create was lost does not take the znode
// of another client with the same data for its own.
func TestSingle_DoesNotAdoptZnodeWithSameData(t *testing.T) {
	runSingle(t, 1, func(w *harness) {
		other, conn := handWritten{w, w.connect(), "same"}, w.connect()
		hook := w.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: singlePath, Session: conn.SessionID(), Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			require.True(w, other.tryLock())
			return zktest.Cut(q)
		})
		a := w.lockSingle(conn, "same")
		w.passTime(timeout)
		w.requireCalled(hook)
		a.requireWaits()
		other.unlock()
		a.requireOnlyZnode()
		a.release()
	})
}

// TestSingle_RespectsHandWrittenHolderOfSameSession checks that Single waits for a hand-written holder on the
// same connection, whose znode belongs to the same session.
func TestSingle_RespectsHandWrittenHolderOfSameSession(t *testing.T) {
	runSingle(t, 1, func(w *harness) {
		conn := w.connect()
		old := handWritten{w, conn, "owner"}
		require.True(w, old.tryLock())
		_, err := w.single(conn, "owner").TryLock(w.Context())
		require.ErrorIs(w, err, ErrHeld)
		a := w.lockSingle(conn, "owner")
		w.passTime(timeout)
		a.requireWaits()
		old.unlock()
		a.requireOnlyZnode()
		a.release()
	})
}

// TestSingle_ExcludesGoroutinesOfOneConnection checks that goroutines that share a connection exclude each
// other, and that TryLock fails while another goroutine waits.
func TestSingle_ExcludesGoroutinesOfOneConnection(t *testing.T) {
	runSingle(t, 1, func(w *harness) {
		conn := w.connect()
		var waiting []*call
		for _, data := range []string{"one", "two", "three"} {
			waiting = append(waiting, w.lockSingle(conn, data))
		}
		for len(waiting) > 0 {
			w.passTime(timeout)
			i := slices.IndexFunc(waiting, (*call).hasReturned)
			require.GreaterOrEqual(w, i, 0)
			a := waiting[i]
			waiting = slices.Delete(waiting, i, i+1)
			w.requireWaiting(waiting...)
			a.requireOnlyZnode()
			_, err := w.single(conn, "x").TryLock(w.Context())
			require.ErrorIs(w, err, ErrHeld)
			_, err = w.single(conn, "x").Lock(a.hold.Context())
			require.ErrorIs(w, err, ErrReentrant)
			a.release()
		}
	})
}

// TestSingle_CancelledLockLeavesNoZnode checks that a call of Lock that is cancelled leaves no znode, and does
// not block other goroutines.
// Scenario 6 of docs/traps.md.
func TestSingle_CancelledLockLeavesNoZnode(t *testing.T) {
	runSingle(t, 1, func(w *harness) {
		old, conn := handWritten{w, w.connect(), "old"}, w.connect()
		require.True(w, old.tryLock())
		a := w.lockSingle(conn, "a")
		b := w.lockSingle(conn, "b")
		a.cancel()
		w.passTime(0)
		a.requireFails(context.Canceled)
		old.unlock()
		b.requireOnlyZnode()
		b.release()

		w.srv.Delay(zktest.ToClient, time.Second, conn.SessionID())
		a = w.lockSingle(conn, "a")
		require.Contains(w, w.srv.Tree(), "single-lock", "the reply is in flight")
		a.cancel()
		w.passTime(0)
		a.requireFails(context.Canceled)
		w.srv.Heal()
		w.passTime(timeout)
		w.requireContenders()
	})
}

// TestSingle_WaitSurvivesSessionExpiry checks that a call of Lock that waits continues in the next session if
// its session expires.
func TestSingle_WaitSurvivesSessionExpiry(t *testing.T) {
	runSingle(t, 1, func(w *harness) {
		old := handWritten{w, w.connect(), "old"}
		require.True(w, old.tryLock())
		a := w.lockSingle(w.connect(), "a")
		for range 3 {
			w.expire(a.conn)
			w.passTime(timeout)
			a.requireWaits()
		}
		old.unlock()
		a.requireOnlyZnode()
		a.release()

		// The session expires between the create and the grant.
		hook := w.srv.Before(zktest.Match{Op: zktest.OpGetChildren2, Path: singlePath, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			require.NoError(w, w.srv.ExpireSession(q.Session))
			return zktest.Pass(q)
		})
		a = w.lockSingle(a.conn, "a")
		w.passTime(timeout)
		w.requireCalled(hook)
		a.requireOnlyZnode()
		a.release()
	})
}

// TestSingle_RejectsPersistentZnode checks that Lock, TryLock and Holder reject a persistent znode, because the
// servers would never delete it, and that the error tells the user to delete it.
func TestSingle_RejectsPersistentZnode(t *testing.T) {
	runSingle(t, 1, func(w *harness) {
		s := w.single(w.connect(), "a")
		w.create(singlePath)
		_, lockErr := s.Lock(w.Context())
		_, tryErr := s.TryLock(w.Context())
		_, readErr := s.Holder(w.Context())
		for _, err := range []error{lockErr, tryErr, readErr} {
			require.ErrorIs(w, err, recipes.ErrTaken)
			require.ErrorContains(w, err, "is persistent")
			require.ErrorContains(w, err, "delete "+singlePath)
		}
		w.remove(singlePath)
		h, err := s.Lock(w.Context())
		require.NoError(w, err)
		require.NoError(w, h.Release())
	})
}

// TestSingle_CreatesMissingParentsAsPersistentZnodes checks that Single creates missing parents as persistent
// znodes, because a hand-written program may create them only when it starts.
func TestSingle_CreatesMissingParentsAsPersistentZnodes(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		s := w.single(w.connect(), "a")
		for range 2 {
			h, err := s.Lock(w.Context())
			require.NoError(w, err)
			require.NoError(w, h.Release())
			w.passTime(10 * time.Minute)
			require.Zero(w, w.srv.Sweep())
			require.Contains(w, w.srv.Tree(), "app\n")
		}
	})
}

// TestSingle_FailsWithoutPermission checks that Lock returns ErrPermission if it may not create the znode, or
// may not read the znode of the holder.
func TestSingle_FailsWithoutPermission(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		_, err := w.operator.Create("/app", nil, 0, zk.WorldACL(zk.PermAll&^zk.PermCreate))
		require.NoError(w, err)
		s := w.single(w.connect(), "a")
		_, err = s.Lock(w.Context())
		require.ErrorIs(w, err, recipes.ErrPermission)
		require.ErrorContains(w, err, singlePath)

		_, err = w.operator.SetACL("/app", zk.WorldACL(zk.PermAll), -1)
		require.NoError(w, err)
		_, err = w.operator.Create(singlePath, nil, zk.FlagEphemeral, zk.DigestACL(zk.PermAll, "some", "one"))
		require.NoError(w, err)
		for _, lock := range []func(context.Context) (*Hold, error){s.Lock, s.TryLock} {
			_, err = lock(w.Context())
			require.ErrorIs(w, err, recipes.ErrPermission)
		}
		holder, err := s.Holder(w.Context())
		require.NoError(w, err)
		require.True(w, holder.Holds)
		require.Empty(w, holder.Name)
		w.remove(singlePath)
	})
}

// TestSingle_DoesNotAdoptZnodeCreatedWhileDisconnected checks that a holder does not take the znode of another
// client at the same path for its own, if its znode was deleted and the other created while the holder was
// disconnected.
func TestSingle_DoesNotAdoptZnodeCreatedWhileDisconnected(t *testing.T) {
	runSingle(t, 1, func(w *harness) {
		w.allowOverlap = true // the test deletes the holder's znode, so two holds can overlap
		a, next := w.lockSingle(w.connect(), "a"), handWritten{w, w.connect(), "next"}
		w.passTime(timeout)
		h := a.requireHolds()
		w.cutConnection(a.conn)
		w.remove(singlePath)
		require.True(w, next.tryLock())
		w.restore()
		require.ErrorIs(w, h.Err(), recipes.ErrDeleted)
		_, err := h.Multi()
		require.ErrorIs(w, err, recipes.ErrNotHeld)
		require.NoError(w, h.Release())
		next.unlock()
	})
}

// TestSingle_HoldSurvivesConnectionBreaks checks that a hold survives short breaks of the connection.
func TestSingle_HoldSurvivesConnectionBreaks(t *testing.T) {
	runSingle(t, 1, func(w *harness) {
		a := w.lockSingle(w.connect(), "a")
		for range 3 {
			w.passTime(timeout)
			w.cutConnection(a.conn)
			w.restore()
			a.requireOnlyZnode()
		}
		a.release()
	})
}

// TestSingle_AppliesTransactionOnlyWhileHeld checks that a transaction is applied only while the lock is held.
// Each transaction requires a record, an ephemeral znode of the holder's session. If another client deletes the
// record, the next transaction creates it again.
func TestSingle_AppliesTransactionOnlyWhileHeld(t *testing.T) {
	runSingle(t, 1, func(w *harness) {
		w.create("/register")
		a := w.lockSingle(w.connect(), "a")
		h := a.requireHolds()
		set := func(data string) error {
			_, err := h.Multi(&zk.SetDataRequest{Path: "/register", Data: []byte(data), Version: -1})
			return err
		}
		require.NoError(w, set("one"))
		children, _, err := w.operator.Children("/app")
		require.NoError(w, err)
		require.Len(w, children, 2)
		for _, name := range children {
			if strings.HasPrefix(name, "_r_") {
				w.remove("/app/" + name)
			}
		}
		require.NoError(w, set("two"))
		_, err = h.Multi(&zk.SetDataRequest{Path: "/missing"})
		require.ErrorIs(w, err, zk.ErrNoNode)
		require.NoError(w, h.Release())
		require.ErrorIs(w, set("three"), recipes.ErrNotHeld)
		require.Contains(w, w.srv.Tree(), `register "two"`)

		// Without the permission to create the record, the transaction fails and writes nothing.
		b := w.lockSingle(w.connect(), "b")
		h = b.requireHolds()
		_, err = w.operator.SetACL("/app", zk.WorldACL(zk.PermAll&^zk.PermCreate), -1)
		require.NoError(w, err)
		require.ErrorIs(w, set("four"), recipes.ErrPermission)
		require.NoError(w, h.Err())
		b.release()
	})
}

// TestSingle_RejectsTransactionSentInNextSession checks that a transaction is not applied if the client library
// sends it in the next session, because the current session has expired while it waited for a connection. In
// the next session, another client can hold the lock with a znode at the same path.
// Scenario 19 of docs/traps.md.
func TestSingle_RejectsTransactionSentInNextSession(t *testing.T) {
	runSingle(t, 3, func(w *harness) {
		w.allowOverlap = true
		w.create("/register")
		conn := w.connectTo(1)
		a, next := w.lockSingle(conn, "a"), handWritten{w, w.connectTo(0), "next"}
		h := a.requireHolds()
		_, err := h.Multi()
		require.NoError(w, err)
		session := conn.SessionID()
		w.srv.Before(zktest.Match{Op: zktest.OpConnect, Session: session, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			require.NoError(w, w.srv.ExpireSession(session))
			require.True(w, next.tryLock())
			time.Sleep(time.Second)
			return zktest.Pass(q)
		})
		w.ensemble.Server(1).DropConnections(session)
		time.Sleep(500 * time.Millisecond)
		_, err = h.Multi(&zk.SetDataRequest{Path: "/register", Data: []byte("late"), Version: -1})
		require.Error(w, err)
		w.passTime(timeout)
		sent := w.ensemble.Server(1).Log().Session(conn.SessionID()).Filter(func(e zktest.Entry) bool { return e.Op == zktest.OpMulti && e.Ops == 3 })
		require.Len(w, sent, 1, "the transaction was sent in the next session")
		require.NotContains(w, w.ensemble.Tree(), "late")
		next.unlock()
	})
}

// TestSingle_LeavesNoGoroutineOrWatch checks that acquisitions leave no goroutine and no watch, and do not
// occupy the path on the connection.
func TestSingle_LeavesNoGoroutineOrWatch(t *testing.T) {
	runSingle(t, 1, func(w *harness) {
		conn, old := w.connect(), handWritten{w, w.connect(), "old"}
		s := w.single(conn, "a")
		goroutines := bubble.Goroutines()
		for range 100 {
			require.True(w, old.tryLock())
			_, err := s.TryLock(w.Context())
			require.ErrorIs(w, err, ErrHeld)
			ctx, cancel := context.WithTimeout(w.Context(), time.Second)
			_, err = s.Lock(ctx)
			cancel()
			require.ErrorIs(w, err, context.DeadlineExceeded)
			require.LessOrEqual(w, bubble.Watches(conn), 1)
			old.unlock()
			h, err := s.Lock(w.Context())
			require.NoError(w, err)
			h.ReleaseRequested()
			require.NoError(w, h.Release())
		}
		w.passTime(time.Minute)
		require.Equal(w, goroutines, bubble.Goroutines())
		require.Zero(w, bubble.Watches(conn))
	})
}

// TestSingle_ReleaseCostsTwoRequestsPerWaiter checks that a release wakes each waiting client, and that each of
// them sends a create and a read.
func TestSingle_ReleaseCostsTwoRequestsPerWaiter(t *testing.T) {
	runSingle(t, 1, func(w *harness) {
		const waiters = 5
		holder := w.lockSingle(w.connect(), "holder")
		var waiting []*call
		for range waiters {
			waiting = append(waiting, w.lockSingle(w.connect(), "waiter"))
		}
		w.passTime(timeout)
		begin := len(w.srv.Log())
		holder.release()
		requests := 0
		for _, a := range waiting {
			requests += len(w.sentSince(begin, a.conn))
		}
		require.Equal(w, 2*waiters, requests)
	})
}

// TestNewSingle_RejectsInvalidArguments checks that NewSingle rejects invalid arguments, and options that apply
// only to other locks.
func TestNewSingle_RejectsInvalidArguments(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		for name, f := range map[string]func() (*Single, error){
			"no connection":  func() (*Single, error) { return NewSingle(nil, singlePath, nil) },
			"root":           func() (*Single, error) { return NewSingle(w.operator, "/", nil) },
			"too much data":  func() (*Single, error) { return NewSingle(w.operator, singlePath, make([]byte, 2<<20)) },
			"name":           func() (*Single, error) { return NewSingle(w.operator, singlePath, nil, WithName("x")) },
			"lock-delay":     func() (*Single, error) { return NewSingle(w.operator, singlePath, nil, WithLockDelay(time.Second)) },
			"option is nil":  func() (*Single, error) { return NewSingle(w.operator, singlePath, nil, nil) },
			"invalid option": func() (*Single, error) { return NewSingle(w.operator, singlePath, nil, recipes.WithSessionTimeout(0)) },
		} {
			_, err := f()
			require.ErrorIs(w, err, recipes.ErrInvalid, name)
		}
	})
}
