package lock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/handshake"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// CURATOR-696, CURATOR-604: a contender takes the lock although its znode is from
// the session before, and is about to go.
func TestTrap11_ZnodeOfThePreviousSession(t *testing.T) {
	play(t, 3, func(w *harness) {
		holder, a := w.lock(w.connect()), w.lock(w.connect())
		own := w.contenders()[1]
		w.outlive(a.conn, own)
		w.srv.Before(zktest.Match{Op: zktest.OpDelete, Path: own, Nth: 1}, zktest.Fail(zk.ErrNoAuth)) // it cannot delete that
		holder.release()
		w.restore()
		w.pass(timeout)
		require.ErrorIs(w, a.failed(), recipes.ErrSessionExpired)
		w.line(own)
		w.remove(own)
	})
}

// CURATOR-460, TN14: a lease that is counted from the moment at which the client
// sees the connection break ends after the session.
func TestTrap12_LeaseCountsFromTheLastProof(t *testing.T) {
	play(t, 1, func(w *harness) {
		a, next := w.lock(w.connect()), w.lock(w.connect())
		h := a.holds()
		w.pass(2*timeout + moment)
		w.silence(a.conn)
		w.endsInTime(a)
		require.Equal(w, zk.StateHasSession, a.conn.State(), "the client library has seen nothing yet")
		w.pass(w.session(a.conn).ExpiresIn - 1)
		next.waits()
		w.pass(1)
		next.holds()
		w.unsilence(a.conn)
		w.pass(2 * timeout)
		require.ErrorIs(w, h.Err(), recipes.ErrLeaseExpired)
	})
}

// endsInTime asserts that a hold that cannot be proven from now on ends with its
// lease, half a session timeout after what was proven last.
func (w *harness) endsInTime(a *call) {
	w.Helper()
	h := a.holds()
	done := doneAt(h)
	left := time.Until(h.Deadline())
	require.LessOrEqual(w, left, timeout/2)
	require.Greater(w, left, timeout/2-timeout/8-timeout/32, "the last proof is old")
	require.Greater(w, w.session(a.conn).ExpiresIn-left, timeout/8, "the session's end is near")
	w.pass(left - 1)
	a.holds()
	w.pass(1)
	require.Equal(w, time.Now(), <-done)
	require.ErrorIs(w, h.Err(), recipes.ErrLeaseExpired)
}

// CURATOR-444: a server that is cut off answers reads, while the others expire
// the session.
func TestTrap13_PartitionedServerAnswers(t *testing.T) {
	play(t, 3, func(w *harness) {
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
		require.True(w, found, "for the old holder's server nothing has happened")
		_, err = h.Multi()
		require.ErrorIs(w, err, ErrNotHeld)
		w.servers(func(s *zktest.Server) { s.Refuse(false) })
		w.srv.Heal()
		w.pass(2 * timeout)
		next.holds()
	})
}

// ZOOKEEPER-2886: a session that has moved is no reason to lose a lock, nor does
// such an answer prove it.
func TestTrap10_SessionMovedDuringCheck(t *testing.T) {
	each(t, answers, 1, func(w *harness, l loss) {
		a, next := w.lock(w.connect()), w.lock(w.connect())
		h := a.holds()
		for range 5 {
			w.pass(timeout + moment)
			one := l.set(w.srv, zktest.Match{Op: zktest.OpMulti, Path: h.Path(), Nth: 1})
			w.pass(timeout / 4)
			w.ran(one)
		}
		require.NoError(w, h.Err())
		all := l.set(w.srv, zktest.Match{Op: zktest.OpMulti, Session: a.conn.SessionID()})
		w.endsInTime(a)
		all.Remove()
		w.pass(timeout)
		next.holds()
	})
}

// CURATOR-206, kazoo #2, go-zookeeper #190: the holder is not told that the lock is
// gone.
func TestTrap14_HolderIsTold(t *testing.T) {
	for _, end := range []struct {
		name   string
		do     func(w *harness, a *call)
		reason error
	}{
		{"released", func(w *harness, a *call) { a.release() }, ErrReleased},
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
			play(t, 1, func(w *harness) {
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

// InterProcessMutex keeps who holds it in the process, and goes on to say so after
// the session, to a second acquire too: here nothing says it.
func TestTrap15_NothingOfALostHoldIsLeft(t *testing.T) {
	play(t, 3, func(w *harness) {
		conn := w.connect()
		m := w.mutex(conn)
		a := w.startCall(conn, m.Lock)
		next := w.lock(w.connect())
		h := a.holds()
		w.expire(conn)
		w.pass(timeout)
		w.excused = true
		require.Error(w, h.Err())
		next.holds()
		_, err := m.TryLock(w.Context())
		require.ErrorIs(w, err, ErrHeld, "by the same value, over the same connection")
		_, err = h.Multi()
		require.ErrorIs(w, err, ErrNotHeld)
		require.NoError(w, h.Release(w.Context()))
		next.alone()
	})
}

// TN10, Kleppmann 2016, Jepsen etcd 3.4.3: a holder that was stopped goes on after
// another one has got the lock, and writes. Here it has a lease far too long, which
// is as if it had just looked at the clock when it was stopped.
func TestTrap16_StoppedHolderWrites(t *testing.T) {
	play(t, 1, func(w *harness) {
		w.excused = true
		w.create("/register")
		conn := w.connect()
		handshake.Of(conn).Grant(time.Minute)
		a := w.lock(conn, recipes.WithSessionTimeout(time.Minute))
		next := w.lock(w.connect())
		old := a.holds()
		w.pass(timeout)
		w.silence(a.conn)
		w.pass(2 * timeout)
		h := next.holds()
		require.NoError(w, old.Err(), "the old holder must still believe")
		require.Greater(w, h.Token(), old.Token(), "what checks tokens refuses the old holder")
		late := async(func() error { return register(old, "too late") })
		w.pass(0)
		require.NoError(w, register(h, "new"))
		w.unsilence(a.conn)
		w.pass(timeout)
		require.ErrorIs(w, <-late, recipes.ErrUnconfirmed)
		require.ErrorIs(w, register(old, "too late"), ErrNotHeld)
		data, stat, err := w.operator.Get("/register")
		require.NoError(w, err)
		require.Equal(w, "new", string(data))
		require.EqualValues(w, 1, stat.Version)
	})
}

// register writes what only a holder may write.
func register(h *Hold, what string) error {
	_, err := h.Multi(&zk.SetDataRequest{Path: "/register", Data: []byte(what), Version: -1})
	return err
}

// Kleppmann 2016, where the old holder's write is on its way while another one gets
// the lock.
func TestTrap16_WriteUnderWay(t *testing.T) {
	play(t, 1, func(w *harness) {
		w.excused = true
		w.create("/register")
		a, next := w.lock(w.connect()), w.lock(w.connect())
		old := a.holds()
		w.srv.Blackhole(zktest.ToServer, a.conn.SessionID())
		late := async(func() error { return register(old, "too late") })
		w.pass(0)
		w.remove(old.Path())
		w.pass(moment)
		require.Greater(w, next.holds().Token(), old.Token())
		w.srv.Heal(a.conn.SessionID())
		require.ErrorIs(w, <-late, ErrNotHeld)
		require.Zero(w, w.stat("/register").Version)
	})
}

// ClickHouse #116690: the client library goes on in a new session without anybody's
// having seen the old one expire.
func TestTrap18_NewSessionUnseen(t *testing.T) {
	t.Run("while holding", func(t *testing.T) {
		play(t, 3, func(w *harness) {
			a := w.lock(w.connect())
			old := a.conn.SessionID()
			w.expire(a.conn)
			w.pass(0) // there are three servers: the next one is dialled at once
			require.Equal(w, zk.StateHasSession, a.conn.State())
			require.NotEqual(w, old, a.conn.SessionID())
			require.Error(w, a.hold.Err())
		})
	})
	t.Run("while waiting", func(t *testing.T) {
		play(t, 3, func(w *harness) {
			holder, a := w.lock(w.connect()), w.lock(w.connect())
			w.expire(a.conn)
			w.pass(moment)
			require.ErrorIs(w, a.failed(), recipes.ErrSessionExpired)
			w.line(holder.hold.Path())
		})
	})
	t.Run("while entering", func(t *testing.T) {
		// The create is queued in one session and carried out in the next.
		play(t, 3, func(w *harness) {
			w.dirs()
			conn := w.connect()
			old := conn.SessionID()
			w.cut(conn)
			w.expire(conn)
			a := w.lock(conn)
			w.pass(moment)
			w.restore()
			w.pass(timeout)
			require.NotEqual(w, old, conn.SessionID())
			a.alone()
		})
	})
}

// kazoo PR 170, #116, #482: something waits for ever on a connection that is
// suspended, or was closed.
func TestTrap22_NothingHangs(t *testing.T) {
	states := []struct {
		name    string
		prepare func(w *harness, conn *zk.Conn) *call
	}{
		{"holding", func(w *harness, conn *zk.Conn) *call { return w.lock(conn) }},
		{"waiting", func(w *harness, conn *zk.Conn) *call {
			w.dirs()
			w.stand("-lock-")
			return w.lock(conn)
		}},
		{"disconnected", func(w *harness, conn *zk.Conn) *call {
			w.dirs()
			w.stand("-lock-")
			a := w.lock(conn)
			w.cut(conn)
			return a
		}},
		{"creating", func(w *harness, conn *zk.Conn) *call {
			w.dirs()
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
				play(t, 1, func(w *harness) {
					w.untidy = true
					a := state.prepare(w, w.connect())
					returned := async(func() struct{} { end.end(a); return struct{}{} })
					w.pass(2*time.Second + moment)
					require.Len(w, returned, 1, "the call that ends it has not returned")
					if state.name == "holding" {
						if end.want == context.Canceled {
							a.holds()
							return
						}
						require.ErrorIs(w, a.hold.Err(), recipes.ErrDeleted)
						require.NoError(w, a.hold.Release(w.Context()), "ZooKeeper has said that nothing is left")
						return
					}
					require.ErrorIs(w, a.failed(), end.want)
				})
			})
		}
	}
}

// kazoo #482, with several contenders on the connection: their znodes all go with the
// session, and the server still tells them of each other.
func TestTrap22_CloseWithSeveral(t *testing.T) {
	for _, releases := range []bool{false, true} {
		t.Run(map[bool]string{false: "held", true: "being released"}[releases], func(t *testing.T) {
			play(t, 1, func(w *harness) {
				conn := w.connect()
				var all []*call
				for range 4 {
					all = append(all, w.lock(conn))
				}
				last := w.lock(w.connect())
				w.pass(timeout)
				if releases {
					w.srv.Before(zktest.Match{Op: zktest.OpDelete, Path: all[0].hold.Path()}, zktest.Cut)
					go all[0].hold.Release(w.Context())
					w.pass(0)
				}
				conn.Close()
				w.pass(timeout)
				require.Error(w, all[0].hold.Err())
				for _, a := range all[1:] {
					require.ErrorIs(w, a.failed(), recipes.ErrConnClosed)
				}
				w.pass(timeout)
				last.alone()
			})
		})
	}
}

// The session ends in the moment in which the holder's znode goes: the next one in line
// was of the same session, and has nothing.
func TestTrap11_SessionEndsAtTheHandOver(t *testing.T) {
	play(t, 3, func(w *harness) {
		conn := w.connect()
		first, second := w.lock(conn), w.lock(conn)
		other := w.lock(w.connect())
		first.holds()
		w.expire(conn)
		w.pass(timeout)
		require.Error(w, first.hold.Err())
		require.ErrorIs(w, second.failed(), recipes.ErrSessionExpired)
		other.alone()
	})
}

// kazoo #482: what is called on a connection that was closed long ago returns, and
// says so.
func TestTrap22_ClosedConnection(t *testing.T) {
	play(t, 1, func(w *harness) {
		conn := w.connect()
		m, rw, multi := w.mutex(conn), w.rw(conn), w.multi(conn, "a", "b")
		conn.Close()
		w.pass(time.Second)
		for name, call := range map[string]func() error{
			"Lock":       func() error { _, err := m.Lock(w.Context()); return err },
			"TryLock":    func() error { _, err := m.TryLock(w.Context()); return err },
			"RLock":      func() error { _, err := rw.RLock(w.Context()); return err },
			"TryRLock":   func() error { _, err := rw.TryRLock(w.Context()); return err },
			"Contenders": func() error { _, err := m.Contenders(w.Context()); return err },
			"Revoke":     func() error { return m.Revoke(w.Context(), Contender{Path: node + "/x"}) },
			"Multi":      func() error { _, err := multi.Lock(w.Context()); return err },
			"Wait":       func() error { _, err := m.Join(w.Context()).Wait(); return err },
			"Position":   func() error { _, err := m.Join(w.Context()).Position(w.Context()); return err },
		} {
			returned := async(call)
			w.pass(time.Second)
			require.Len(w, returned, 1, name)
			require.ErrorIs(w, <-returned, recipes.ErrConnClosed, name)
		}
	})
}

// CURATOR-623, CURATOR-311, CURATOR-97: watches are lost with the session, or what
// they watch for happens while the connection is down.
func TestTrap27_WatchesLost(t *testing.T) {
	t.Run("the predecessors go", func(t *testing.T) {
		play(t, 3, func(w *harness) {
			w.dirs()
			first, second := w.stand("-lock-"), w.stand("-lock-")
			a := w.lock(w.connect())
			for _, gone := range []string{second, first} {
				a.waits()
				w.cut(a.conn)
				w.remove(gone)
				w.pass(moment) // off the instants at which the library looks by itself
				w.restore()
			}
			a.alone()
		})
	})
	for _, farther := range []bool{false, true} {
		t.Run(fmt.Sprintf("and cannot be set anew, farther back %v", farther), func(t *testing.T) {
			play(t, 3, func(w *harness) {
				w.dirs()
				first := ""
				if farther {
					first = w.stand("-lock-")
				}
				ahead, a := w.stand("-lock-"), w.lock(w.connect())
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
				a.alone()
				w.untidy = true // the client library has lost the watch on the own znode, too
			})
		})
	}
	for _, holding := range []bool{true, false} {
		t.Run(map[bool]string{true: "the holder's own znode", false: "a waiter's own znode"}[holding], func(t *testing.T) {
			play(t, 3, func(w *harness) {
				w.dirs()
				if !holding {
					w.stand("-lock-")
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
