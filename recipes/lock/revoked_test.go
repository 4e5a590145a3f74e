package lock

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// revoked reports whether a holder was asked to release.
func revoked(h *Hold) bool {
	select {
	case <-h.Revoked():
		return true
	default:
		return false
	}
}

func TestRevoke(t *testing.T) {
	play(t, 1, func(w *harness) {
		first, second := w.lock(w.connect()), w.lock(w.connect())
		h := first.holds()
		require.False(w, revoked(h))
		w.pass(0)

		// Other writes are no requests, and do not end the watch.
		w.set(h.Path(), "something else")
		w.pass(0)
		require.False(w, revoked(h))

		m := w.mutex(w.operator)
		all, err := m.Contenders(w.Context())
		require.NoError(w, err)
		require.NoError(w, m.Revoke(w.Context(), all[0]))
		w.pass(0)
		require.True(w, revoked(h))
		require.NoError(w, h.Err(), "nothing else happens")
		second.waits()
		all, err = m.Contenders(w.Context())
		require.NoError(w, err)
		require.Equal(w, "__REVOKE__", all[0].Name, "as Curator writes it")

		first.release()
		second.holds()
		require.False(w, revoked(second.hold))
		require.ErrorIs(w, m.Revoke(w.Context(), all[0]), ErrNotHeld)
		require.ErrorIs(w, m.Revoke(w.Context(), Contender{Path: "/locks/two/x"}), recipes.ErrInvalidOption)
	})
}

// Who was asked while it waited learns of it when it has the lock.
func TestRevokeAWaiter(t *testing.T) {
	play(t, 1, func(w *harness) {
		first, second := w.lock(w.connect()), w.lock(w.connect())
		m := w.mutex(w.operator)
		all, err := m.Contenders(w.Context())
		require.NoError(w, err)
		require.NoError(w, m.Revoke(w.Context(), all[1]))
		w.pass(0)
		first.release()
		require.False(w, revoked(second.holds()))
		w.pass(0)
		require.True(w, revoked(second.hold))
	})
}

// A request that comes while the connection is down is read when it is back.
func TestRevokeWhileTheConnectionIsDown(t *testing.T) {
	play(t, 3, func(w *harness) {
		a := w.lock(w.connect())
		h := a.holds()
		h.Revoked()
		w.pass(0)
		path := h.Path()
		w.servers(func(s *zktest.Server) { s.DropConnections(a.conn.SessionID()) })
		w.set(path, revokeRequest)
		w.pass(timeout / 4)
		require.NoError(w, h.Err())
		require.True(w, revoked(h))
	})
}

// The client library can set a watch anew with a zxid that is too new, and so lose
// a change: the own znode is read again.
func TestRevokeWithAWatchThatIsLost(t *testing.T) {
	play(t, 3, func(w *harness) {
		a := w.lock(w.connect())
		h := a.holds()
		h.Revoked()
		w.pass(0)
		lost := w.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: a.conn.SessionID()}, zktest.Fail(zktest.Code(-5)))
		w.servers(func(s *zktest.Server) { s.DropConnections(a.conn.SessionID()) })
		w.set(h.Path(), revokeRequest)
		w.pass(timeout / 4)
		w.ran(lost)
		lost.Remove()
		require.NoError(w, h.Err())
		require.True(w, revoked(h))
	})
}

// After a downgrade the requests come to another znode.
func TestRevokeAfterADowngrade(t *testing.T) {
	play(t, 1, func(w *harness) {
		x := w.write(w.connect())
		h := x.holds()
		h.Revoked()
		w.pass(0)
		// Whoever watches hears of the old znode's end before the new one is known.
		wait, open := w.gate()
		w.srv.After(zktest.Match{Op: zktest.OpMulti, Path: x.asReader(), Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			<-wait
			return zktest.Pass(q)
		})
		down := async(func() error { return x.write.Downgrade(w.Context()) })
		w.pass(0)
		open()
		require.NoError(w, <-down)
		w.pass(0)
		require.False(w, revoked(h))
		w.set(h.Path(), revokeRequest)
		w.pass(0)
		require.True(w, revoked(h))
		x.release()
	})
}

// However the grant ends, nobody goes on to watch; and who asks later is not told
// anything.
func TestRevokedEndsWithTheGrant(t *testing.T) {
	for name, end := range map[string]func(w *harness, a *call){
		"release":         func(w *harness, a *call) { a.release() },
		"znode deleted":   func(w *harness, a *call) { w.remove(a.hold.Path()) },
		"session expired": func(w *harness, a *call) { w.expire(a.conn) },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 3, func(w *harness) {
				a := w.lock(w.connect())
				h := a.holds()
				h.Revoked()
				w.pass(0)
				end(w, a)
				w.pass(timeout)
				require.Error(w, h.Err())
				<-h.watching
				require.False(w, revoked(h))
				require.Empty(w, w.srv.Watches())
				late := w.lock(a.conn)
				late.release()
				require.False(w, revoked(late.hold))
			})
		})
	}
}

// What the documentation of Revoked says: a request goes with the old znode, unless it
// was seen before.
func TestRevokeBeforeADowngrade(t *testing.T) {
	for _, seen := range []bool{true, false} {
		play(t, 1, func(w *harness) {
			x := w.write(w.connect())
			x.holds()
			if seen {
				x.hold.Revoked()
				w.pass(0)
			}
			require.NoError(w, w.rw(w.operator).Revoke(w.Context(), Contender{Path: x.hold.Path()}))
			w.pass(0)
			x.downgrade()
			w.pass(moment)
			revoked := x.hold.Revoked()
			w.pass(moment)
			select {
			case <-revoked:
				require.True(w, seen)
			default:
				require.False(w, seen)
			}
			x.release()
		})
	}
}

// The same for the watch by which a holder learns that it was asked to release.
func TestTrap25_RevocationHasOneWatch(t *testing.T) {
	play(t, 3, func(w *harness) {
		a := w.lock(w.connect())
		h := a.holds()
		h.Revoked()
		for i := range 10 {
			w.set(h.Path(), fmt.Sprint(i))
			w.pass(0)
			h.Revoked()
			require.Equal(w, 2, clientWatches(a.conn))
			w.servers(func(s *zktest.Server) { s.DropConnections(a.conn.SessionID()) })
			w.pass(timeout / 5)
			require.Equal(w, 3, clientWatches(a.conn), "that on the data was set again")
		}
		refused := w.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: a.conn.SessionID(), Nth: 1}, zktest.Fail(zktest.Code(-127)))
		w.servers(func(s *zktest.Server) { s.DropConnections(a.conn.SessionID()) })
		w.pass(timeout / 2)
		w.ran(refused)
		w.set(h.Path(), revokeRequest)
		w.pass(0)
		select {
		case <-h.Revoked():
		default:
			w.Fatal("the request was not noticed")
		}
		a.release()
		require.Zero(w, clientWatches(a.conn))
	})
}
