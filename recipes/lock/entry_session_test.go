package lock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/testenv/lostreply"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// CURATOR-696, CURATOR-604: a contender acquires the lock although its znode belongs to the
// previous session, and will be deleted.
func TestTrap11_ZnodeOfPreviousSession(t *testing.T) {
	runTest(t, 3, func(w *harness) {
		holder, a := w.lock(w.connect()), w.lock(w.connect())
		own := w.contenders()[1]
		w.leaveStaleZnode(a.conn, own)
		w.srv.Before(zktest.Match{Op: zktest.OpDelete, Path: own, Nth: 1}, zktest.Fail(zk.ErrNoAuth)) // the contender cannot delete the znode
		holder.release()
		w.restore()
		w.pass(timeout)
		require.ErrorIs(w, a.failed(), recipes.ErrSessionExpired)
		w.requireContenders(own)
		w.remove(own)
	})
}

// CURATOR-460, TN14: a lease that is measured from the time at which the client notices the
// disconnect expires after the session.
func TestTrap12_LeaseStartsWithLastCheck(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		a, next := w.lock(w.connect()), w.lock(w.connect())
		h := a.holds()
		w.pass(2*timeout + moment)
		w.isolate(a.conn)
		w.endsInTime(a)
		require.Equal(w, zk.StateHasSession, a.conn.State(), "the client library has not noticed the disconnect")
		w.pass(w.session(a.conn).ExpiresIn - 1)
		next.waits()
		w.pass(1)
		next.holds()
		w.reconnect(a.conn)
		w.pass(2 * timeout)
		require.ErrorIs(w, h.Err(), recipes.ErrLeaseExpired)
	})
}

// endsInTime asserts that a hold whose lease cannot be renewed from now on ends when the lease
// expires, half a session timeout after the last acknowledged check was sent.
func (w *harness) endsInTime(a *call) {
	w.Helper()
	h := a.holds()
	done := doneAt(h)
	left := time.Until(h.Deadline())
	require.LessOrEqual(w, left, timeout/2)
	require.Greater(w, left, timeout/2-timeout/8-timeout/32, "the last check was too long ago")
	require.Greater(w, w.session(a.conn).ExpiresIn-left, timeout/8, "the session expires soon after the lease")
	w.pass(left - 1)
	a.holds()
	w.pass(1)
	require.Equal(w, time.Now(), <-done)
	require.ErrorIs(w, h.Err(), recipes.ErrLeaseExpired)
}

// CURATOR-444: a server that is cut off from the others answers reads, while the others expire the
// session.
func TestTrap13_PartitionedServerAnswers(t *testing.T) {
	runTest(t, 3, func(w *harness) {
		a, next := w.lock(w.connectTo(0)), w.lock(w.connectTo(1))
		reader := w.connectTo(0)
		h := a.holds()
		w.pass(2*timeout + moment)
		w.srv.Partition()
		w.servers(func(s *zktest.Server) { s.Refuse(true) })
		w.endsInTime(a)
		w.pass(w.session(a.conn).ExpiresIn - 1)
		next.waits()
		w.pass(1)
		next.holds()
		found, _, err := reader.Exists(h.Path())
		require.NoError(w, err)
		require.True(w, found, "the server of the old holder has not noticed the expiry")
		_, err = h.Multi()
		require.ErrorIs(w, err, recipes.ErrNotHeld)
		w.servers(func(s *zktest.Server) { s.Refuse(false) })
		w.srv.Heal()
		w.pass(2 * timeout)
		next.holds()
	})
}

// ZOOKEEPER-2886: if a server reports that the session has moved, the lock is not lost, and the
// lease is not renewed.
func TestTrap10_SessionMovedDuringCheck(t *testing.T) {
	forEachLoss(t, lostreply.SessionMoved, 1, func(w *harness, l lostreply.Fault) {
		a, next := w.lock(w.connect()), w.lock(w.connect())
		h := a.holds()
		for range 5 {
			w.pass(timeout + moment)
			one := l.Set(w.srv, zktest.Match{Op: zktest.OpMulti, Path: h.Path(), Nth: 1})
			w.pass(timeout / 4)
			w.ran(one)
		}
		require.NoError(w, h.Err())
		all := l.Set(w.srv, zktest.Match{Op: zktest.OpMulti, Session: a.conn.SessionID()})
		w.endsInTime(a)
		all.Remove()
		w.pass(timeout)
		next.holds()
	})
}

// CURATOR-206, kazoo #2, go-zookeeper #190: the holder does not learn that the lock is lost.
func TestTrap14_HolderIsNotified(t *testing.T) {
	for _, end := range []struct {
		name   string
		do     func(w *harness, a *call)
		reason error
	}{
		{"released", func(w *harness, a *call) { a.release() }, recipes.ErrReleased},
		{"znode deleted", func(w *harness, a *call) { w.remove(a.hold.Path()) }, recipes.ErrDeleted},
		{"connection closed", func(_ *harness, a *call) { a.conn.Close() }, recipes.ErrDeleted},
		{"session expired", func(w *harness, a *call) {
			w.cut(a.conn)
			w.expire(a.conn)
			w.servers(func(s *zktest.Server) { s.Refuse(false) })
			w.pass(0)
		}, recipes.ErrSessionExpired},
	} {
		t.Run(end.name, func(t *testing.T) {
			runTest(t, 1, func(w *harness) {
				a := w.lock(w.connect())
				h := a.holds()
				done := doneAt(h)
				w.pass(timeout / 3)
				begin := time.Now()
				end.do(w, a)
				w.pass(time.Second + 2*moment)
				require.WithinDuration(w, begin, <-done, time.Second+moment)
				require.ErrorIs(w, h.Err(), end.reason)
				require.ErrorIs(w, context.Cause(h.Context()), end.reason)
			})
		})
	}
}

// InterProcessMutex stores in the process which thread holds it. After session expiry it still
// reports the thread as holder, and a second acquire succeeds. Here the state is only in
// ZooKeeper.
func TestTrap15_LostHoldLeavesNoState(t *testing.T) {
	runTest(t, 3, func(w *harness) {
		conn := w.connect()
		m := w.mutex(conn)
		a := w.startCall(conn, m.Lock)
		next := w.lock(w.connect())
		h := a.holds()
		w.expire(conn)
		w.pass(timeout)
		w.allowOverlap = true
		require.Error(w, h.Err())
		next.holds()
		_, err := m.TryLock(w.Context())
		require.ErrorIs(w, err, ErrHeld, "with the same Mutex and connection")
		_, err = h.Multi()
		require.ErrorIs(w, err, recipes.ErrNotHeld)
		require.NoError(w, h.Release())
		next.requireOnlyZnode()
	})
}

// TN10, Kleppmann 2016, Jepsen etcd 3.4.3: a holder that was stopped continues
// after another client has acquired the lock, and writes. The test uses a lease
// that is far too long, which has the same effect as a stop right after the check
// of the clock.
func TestTrap16_StoppedHolderWrites(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		w.allowOverlap = true
		w.create("/register")
		conn := w.connect()
		connection.RecordOf(conn).Grant(time.Minute)
		a := w.lock(conn, recipes.WithSessionTimeout(time.Minute))
		next := w.lock(w.connect())
		old := a.holds()
		w.pass(timeout)
		w.isolate(a.conn)
		w.pass(2 * timeout)
		h := next.holds()
		require.NoError(w, old.Err(), "the lease of the old holder must still be valid")
		require.Greater(w, h.Token(), old.Token(), "a system that checks tokens rejects the old holder")
		late := async(func() error { return writeRegister(old, "too late") })
		w.pass(0)
		require.NoError(w, writeRegister(h, "new"))
		w.reconnect(a.conn)
		w.pass(timeout)
		require.ErrorIs(w, <-late, recipes.ErrUnconfirmed)
		require.ErrorIs(w, writeRegister(old, "too late"), recipes.ErrNotHeld)
		data, stat, err := w.operator.Get("/register")
		require.NoError(w, err)
		require.Equal(w, "new", string(data))
		require.EqualValues(w, 1, stat.Version)
	})
}

// writeRegister writes in a transaction of the hold.
func writeRegister(h *Hold, what string) error {
	_, err := h.Multi(&zk.SetDataRequest{Path: "/register", Data: []byte(what), Version: -1})
	return err
}

// Kleppmann 2016: a write of the old holder is in transit while another client acquires the lock.
func TestTrap16_WriteInTransit(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		w.allowOverlap = true
		w.create("/register")
		a, next := w.lock(w.connect()), w.lock(w.connect())
		old := a.holds()
		w.srv.Blackhole(zktest.ToServer, a.conn.SessionID())
		late := async(func() error { return writeRegister(old, "too late") })
		w.pass(0)
		w.remove(old.Path())
		w.pass(moment)
		require.Greater(w, next.holds().Token(), old.Token())
		w.srv.Heal(a.conn.SessionID())
		require.ErrorIs(w, <-late, recipes.ErrNotHeld)
		require.Zero(w, w.stat("/register").Version)
	})
}

// ClickHouse #116690: the client library continues in a new session, without an event for the
// expiry of the old one.
func TestTrap18_SessionReplaced(t *testing.T) {
	t.Run("while holding", func(t *testing.T) {
		runTest(t, 3, func(w *harness) {
			a := w.lock(w.connect())
			old := a.conn.SessionID()
			w.expire(a.conn)
			w.pass(0) // of three servers, the next one is dialled immediately
			require.Equal(w, zk.StateHasSession, a.conn.State())
			require.NotEqual(w, old, a.conn.SessionID())
			require.Error(w, a.hold.Err())
		})
	})
	t.Run("while waiting", func(t *testing.T) {
		runTest(t, 3, func(w *harness) {
			holder, a := w.lock(w.connect()), w.lock(w.connect())
			w.expire(a.conn)
			w.pass(moment)
			require.ErrorIs(w, a.failed(), recipes.ErrSessionExpired)
			w.requireContenders(holder.hold.Path())
		})
	})
	t.Run("while joining", func(t *testing.T) {
		// The create is queued in one session and sent in the next.
		runTest(t, 3, func(w *harness) {
			w.createLockNode()
			conn := w.connect()
			old := conn.SessionID()
			w.cut(conn)
			w.expire(conn)
			a := w.lock(conn)
			w.pass(moment)
			w.restore()
			w.pass(timeout)
			require.NotEqual(w, old, conn.SessionID())
			a.requireOnlyZnode()
		})
	})
}

// kazoo PR 170, #116, #482: a call blocks forever on a connection that is suspended or was closed.
func TestTrap22_NothingHangs(t *testing.T) {
	states := []struct {
		name    string
		prepare func(w *harness, conn *zk.Conn) *call
	}{
		{"holding", func(w *harness, conn *zk.Conn) *call { return w.lock(conn) }},
		{"waiting", func(w *harness, conn *zk.Conn) *call {
			w.createLockNode()
			w.createContender("-lock-")
			return w.lock(conn)
		}},
		{"disconnected", func(w *harness, conn *zk.Conn) *call {
			w.createLockNode()
			w.createContender("-lock-")
			a := w.lock(conn)
			w.cut(conn)
			return a
		}},
		{"creating", func(w *harness, conn *zk.Conn) *call {
			w.createLockNode()
			answer, open := w.gate()
			w.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: under, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
				<-answer
				return zktest.Pass(q)
			})
			time.AfterFunc(5*timeout, open)
			return w.lock(conn)
		}},
		{"entering without a connection", func(w *harness, conn *zk.Conn) *call {
			w.cut(conn)
			return w.lock(conn)
		}},
	}
	ends := []struct {
		name string
		end  func(a *call)
		want error
	}{
		{"closed", func(a *call) { a.conn.Close() }, recipes.ErrConnClosed},
		{"context", func(a *call) { a.cancel() }, context.Canceled},
	}
	for _, state := range states {
		for _, end := range ends {
			t.Run(state.name+", "+end.name, func(t *testing.T) {
				runTest(t, 1, func(w *harness) {
					w.allowLeftovers = true
					a := state.prepare(w, w.connect())
					returned := async(func() struct{} { end.end(a); return struct{}{} })
					w.pass(2*time.Second + moment)
					require.Len(w, returned, 1, "the call did not return when it was ended")
					if state.name == "holding" {
						if end.want == context.Canceled {
							a.holds()
							return
						}
						require.ErrorIs(w, a.hold.Err(), recipes.ErrDeleted)
						require.NoError(w, a.hold.Release(), "ZooKeeper has said that nothing is left")
						return
					}
					require.ErrorIs(w, a.failed(), end.want)
				})
			})
		}
	}
}

// kazoo #482, with several contenders on the connection: all their znodes are deleted with the
// session, and the server still sends each of them the events of the others' deletions.
func TestTrap22_CloseWithSeveralContenders(t *testing.T) {
	for _, releases := range []bool{false, true} {
		t.Run(map[bool]string{false: "held", true: "being released"}[releases], func(t *testing.T) {
			runTest(t, 1, func(w *harness) {
				conn := w.connect()
				var all []*call
				for range 4 {
					all = append(all, w.lock(conn))
				}
				last := w.lock(w.connect())
				w.pass(timeout)
				if releases {
					w.srv.Before(zktest.Match{Op: zktest.OpDelete, Path: all[0].hold.Path()}, zktest.Cut)
					go all[0].hold.Release()
					w.pass(0)
				}
				conn.Close()
				w.pass(timeout)
				require.Error(w, all[0].hold.Err())
				for _, a := range all[1:] {
					require.ErrorIs(w, a.failed(), recipes.ErrConnClosed)
				}
				w.pass(timeout)
				last.requireOnlyZnode()
			})
		})
	}
}

// The session ends at the moment at which the holder's znode is deleted. The znode of the next
// contender belonged to the same session and was deleted as well.
func TestTrap11_SessionEndsAtHandOver(t *testing.T) {
	runTest(t, 3, func(w *harness) {
		conn := w.connect()
		first, second := w.lock(conn), w.lock(conn)
		other := w.lock(w.connect())
		first.holds()
		w.expire(conn)
		w.pass(timeout)
		require.Error(w, first.hold.Err())
		require.ErrorIs(w, second.failed(), recipes.ErrSessionExpired)
		other.requireOnlyZnode()
	})
}

// kazoo #482: all calls return ErrConnClosed if the connection was closed before.
func TestTrap22_ClosedConnection(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		conn := w.connect()
		m, rw, multi := w.mutex(conn), w.rw(conn), w.multi(conn, "a", "b")
		conn.Close()
		w.pass(time.Second)
		for name, call := range map[string]func() error{
			"Lock":           func() error { _, err := m.Lock(w.Context()); return err },
			"TryLock":        func() error { _, err := m.TryLock(w.Context()); return err },
			"RLock":          func() error { _, err := rw.RLock(w.Context()); return err },
			"TryRLock":       func() error { _, err := rw.TryRLock(w.Context()); return err },
			"Contenders":     func() error { _, err := m.Contenders(w.Context()); return err },
			"RequestRelease": func() error { return m.RequestRelease(w.Context(), Contender{Path: node + "/x"}) },
			"Multi":          func() error { _, err := multi.Lock(w.Context()); return err },
			"Wait":           func() error { _, err := m.Join(w.Context()).Wait(); return err },
			"Position":       func() error { _, err := m.Join(w.Context()).Position(w.Context()); return err },
		} {
			returned := async(call)
			w.pass(time.Second)
			require.Len(w, returned, 1, name)
			require.ErrorIs(w, <-returned, recipes.ErrConnClosed, name)
		}
	})
}

// CURATOR-623, CURATOR-311, CURATOR-97: watches are lost with the session, or the watched change
// happens while the connection is down.
func TestTrap27_WatchesLost(t *testing.T) {
	t.Run("the predecessors are deleted", func(t *testing.T) {
		runTest(t, 3, func(w *harness) {
			w.createLockNode()
			first, second := w.createContender("-lock-"), w.createContender("-lock-")
			a := w.lock(w.connect())
			for _, gone := range []string{second, first} {
				a.waits()
				w.cut(a.conn)
				w.remove(gone)
				w.pass(moment) // between the times at which the library checks the connection
				w.restore()
			}
			a.requireOnlyZnode()
		})
	})
	for _, farther := range []bool{false, true} {
		t.Run(fmt.Sprintf("and cannot be set again, farther back %v", farther), func(t *testing.T) {
			runTest(t, 3, func(w *harness) {
				w.createLockNode()
				first := ""
				if farther {
					first = w.createContender("-lock-")
				}
				ahead, a := w.createContender("-lock-"), w.lock(w.connect())
				if farther {
					w.remove(first)
				}
				lost := w.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: a.conn.SessionID()}, zktest.Fail(zktest.Code(-5)))
				w.cut(a.conn)
				w.remove(ahead)
				w.pass(moment)
				w.restore()
				w.ran(lost)
				lost.Remove()
				a.requireOnlyZnode()
				w.allowLeftovers = true // the client library has lost the watch on the contender's znode as well
			})
		})
	}
	for _, holding := range []bool{true, false} {
		t.Run(map[bool]string{true: "the holder's znode", false: "the znode of a waiting contender"}[holding], func(t *testing.T) {
			runTest(t, 3, func(w *harness) {
				w.createLockNode()
				if !holding {
					w.createContender("-lock-")
				}
				a := w.lock(w.connect())
				w.cut(a.conn)
				w.remove(w.contenders()[len(w.contenders())-1])
				w.pass(moment)
				w.restore()
				if holding {
					require.ErrorIs(w, a.hold.Err(), recipes.ErrDeleted)
				} else {
					require.ErrorIs(w, a.failed(), recipes.ErrDeleted)
					w.remove(w.contenders()[0])
				}
			})
		})
	}
}
