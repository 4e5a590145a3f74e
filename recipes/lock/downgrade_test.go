package lock

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestDowngrade(t *testing.T) {
	for _, layout := range []recipes.Layout{recipes.Curator, recipes.Kazoo} {
		play(t, 1, func(w *harness) {
			as := recipes.WithLayout(layout)
			x := w.write(w.connect(), as)
			h := x.holds()
			r := w.read(w.connect(), as)
			next := w.write(w.connect(), as)
			last := w.read(w.connect(), as)
			before, token := h.Path(), h.Token()

			after := x.asReader()
			x.downgrade()
			w.pass(0)
			require.NoError(w, h.Err())
			require.Equal(w, after, h.Path())
			require.Equal(w, before[len(before)-10:], after[len(after)-10:], "the place in line")
			require.Equal(w, token, h.Token())
			require.Equal(w, x.conn.SessionID(), w.stat(h.Path()).EphemeralOwner)
			r.holds()
			next.waits()
			last.waits()
			_, err := h.Multi(&zk.SetDataRequest{Path: node, Version: -1})
			require.NoError(w, err)
			require.NoError(w, x.write.Downgrade(w.Context()), "again")

			// The session's life is proven by the new znode, and its end is told.
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

// The end of the new znode is told at once, not only by a check.
func TestDowngradedHoldIsDeleted(t *testing.T) {
	play(t, 1, func(w *harness) {
		x := w.write(w.connect())
		x.holds()
		x.downgrade()
		w.remove(x.hold.Path())
		w.pass(moment)
		require.ErrorIs(w, x.hold.Err(), recipes.ErrDeleted)
	})
}

// A writer must not take a writer's downgrade for its end, however it has joined.
func TestDowngradeLetsNoWriterIn(t *testing.T) {
	play(t, 1, func(w *harness) {
		first := w.write(w.connect())
		second := w.write(w.connect())
		second.waits()
		require.NoError(w, first.write.Downgrade(w.Context()))
		w.pass(timeout)
		second.waits()
		first.release()
		second.holds()
	})
}

// Curator creates the znode for reading first, and deletes the other one later.
func TestDowngradeByCurator(t *testing.T) {
	play(t, 1, func(w *harness) {
		w.dirs()
		written := w.stand("-__WRIT__")
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

// The reply to the transaction is lost: it is repeated under the same name, and so
// carried out once.
func TestDowngradeAnswerLost(t *testing.T) {
	each(t, append(losses, answers...), 1, func(w *harness, l loss) {
		x := w.write(w.connect())
		h, session := x.holds(), x.conn.SessionID()
		next := w.write(w.connect())
		w.pass(timeout + moment)
		lost := l.set(w.srv, zktest.Match{Op: zktest.OpMulti, Path: x.asReader(), Nth: 1})
		done := async(func() error { return x.write.Downgrade(w.Context()) })
		if l.silent {
			w.pass(timeout)
			require.ErrorIs(w, h.Err(), recipes.ErrLeaseExpired)
			require.ErrorIs(w, <-done, ErrNotHeld)
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

// A check misses the old znode before it is known that the new one is there: that is
// neither an end nor a gap in what is proven.
func TestDowngradeAnswerLostForLong(t *testing.T) {
	play(t, 1, func(w *harness) {
		x := w.write(w.connect())
		h := x.holds()
		w.pass(timeout + moment)
		moved := zktest.Fail(zk.ErrSessionMoved)
		first := w.srv.After(zktest.Match{Op: zktest.OpMulti, Path: x.asReader(), Nth: 1}, moved)
		again := w.srv.Before(zktest.Match{Op: zktest.OpMulti, Path: x.asReader()}, func(q *zktest.Request) zktest.Verdict {
			if ran(first) {
				return moved(q)
			}
			return zktest.Pass(q)
		})
		done := async(func() error { return x.write.Downgrade(w.Context()) })
		w.pass(timeout / 4) // there are two checks in that time
		w.ran(first)
		require.Empty(w, done)
		again.Remove()
		w.pass(timeout)
		require.NoError(w, <-done)
		require.NoError(w, h.Err())
		x.release()
	})
}

// A transaction of the holder that meets the downgrade is not taken for one of a
// former holder.
func TestDowngradeDuringATransaction(t *testing.T) {
	play(t, 1, func(w *harness) {
		x := w.write(w.connect())
		h := x.holds()
		wait, open := w.gate()
		w.srv.After(zktest.Match{Op: zktest.OpMulti, Path: x.asReader(), Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			<-wait
			return zktest.Pass(q)
		})
		down := async(func() error { return x.write.Downgrade(w.Context()) })
		w.pass(0)
		require.Contains(w, w.contenders()[0], "__READ__", "it is carried out, and nobody knows")
		wrote := async(func() error {
			_, err := h.Multi(&zk.SetDataRequest{Path: node, Version: -1})
			return err
		})
		w.pass(0)
		open()
		require.NoError(w, <-down)
		require.NoError(w, <-wrote)
	})
}

// An end of the place while the downgrade is under way leaves nothing behind.
func TestDowngradeMeetsTheEnd(t *testing.T) {
	for _, end := range []struct {
		name string
		do   func(w *harness, x *writer)
	}{
		{"release", func(w *harness, x *writer) { go x.hold.Release(context.Background()) }},
		{"znode deleted", func(w *harness, x *writer) {
			w.excused = true
			for _, p := range w.contenders() {
				w.remove(p)
			}
		}},
		{"session expired", func(w *harness, x *writer) { w.expire(x.conn) }},
		{"connection closed", func(w *harness, x *writer) { go x.conn.Close() }},
	} {
		for _, applied := range []bool{true, false} {
			t.Run(end.name, func(t *testing.T) {
				play(t, 3, func(w *harness) {
					x := w.write(w.connect())
					x.holds()
					wait, open := w.gate()
					set := w.srv.Before
					if applied {
						set = w.srv.After
					}
					set(zktest.Match{Op: zktest.OpMulti, Path: x.asReader(), Nth: 1}, func(q *zktest.Request) zktest.Verdict {
						<-wait
						return zktest.Pass(q)
					})
					ctx, cancel := context.WithTimeout(w.Context(), timeout/4)
					defer cancel()
					down := async(func() error { return x.write.Downgrade(ctx) })
					w.pass(moment)
					end.do(w, x)
					w.pass(moment)
					open()
					w.pass(2 * timeout)
					<-down
					require.Error(w, x.hold.Err())
					w.line()
					w.write(w.connect()).holds()
				})
			})
		}
	}
}

// What ZooKeeper has against it leaves the hold as it was.
func TestDowngradeRefused(t *testing.T) {
	play(t, 1, func(w *harness) {
		x := w.write(w.connect())
		h := x.holds()
		_, err := w.operator.SetACL(node, zk.WorldACL(zk.PermAll&^zk.PermCreate), -1)
		require.NoError(w, err)
		require.ErrorIs(w, x.write.Downgrade(w.Context()), recipes.ErrPermission)
		w.pass(timeout)
		require.NoError(w, h.Err())
		x.alone()
		_, err = w.operator.SetACL(node, zk.WorldACL(zk.PermAll), -1)
		require.NoError(w, err)
		require.NoError(w, x.write.Downgrade(w.Context()))
		x.release()
		require.NoError(w, x.write.Downgrade(w.Context()), "it was done")
	})
}

func TestDowngradeOfALostLock(t *testing.T) {
	play(t, 1, func(w *harness) {
		x := w.write(w.connect())
		x.release()
		require.ErrorIs(w, x.write.Downgrade(w.Context()), ErrNotHeld)

		// At once, however long it takes to leave.
		y := w.write(w.connect())
		w.silence(y.conn)
		go y.hold.Release(w.Context())
		w.pass(0)
		w.elapsed(0, func() { require.ErrorIs(w, y.write.Downgrade(w.Context()), ErrNotHeld) })
		w.unsilence(y.conn)
		w.pass(timeout)
	})
}

// Several goroutines may ask; one context that ends is no harm to the others.
func TestDowngradeBySeveral(t *testing.T) {
	play(t, 1, func(w *harness) {
		x := w.write(w.connect())
		x.holds()
		w.srv.Delay(zktest.BothWays, 100*time.Millisecond, x.conn.SessionID())
		ctx, cancel := context.WithTimeout(w.Context(), 50*time.Millisecond)
		defer cancel()
		first := async(func() error { return x.write.Downgrade(ctx) })
		w.pass(0)
		second := async(func() error { return x.write.Downgrade(w.Context()) })
		err := <-first
		require.ErrorIs(w, err, recipes.ErrUnconfirmed)
		require.ErrorIs(w, err, context.DeadlineExceeded)
		require.NoError(w, <-second)
		require.NoError(w, x.write.Downgrade(w.Context()))
		w.srv.Heal()
		require.NoError(w, x.hold.Err())
	})
}

// The downgrade is carried out, its reply is lost, and ZooKeeper refuses to repeat it:
// the new znode must not stay behind unknown and block writers.
func TestDowngradeAnswerLostThenRefused(t *testing.T) {
	play(t, 1, func(w *harness) {
		x := w.write(w.connect())
		h, session := x.holds(), x.conn.SessionID()
		w.pass(timeout + moment)
		match := zktest.Match{Op: zktest.OpMulti, Path: x.asReader(), Nth: 1}
		lost := w.srv.After(match, zktest.Fail(zk.ErrSessionMoved))
		match.Nth = 2
		refused := w.srv.Before(match, zktest.Fail(zk.ErrNoAuth))
		require.ErrorIs(w, x.write.Downgrade(w.Context()), recipes.ErrPermission)
		w.ran(lost, refused)
		w.pass(timeout)
		require.ErrorIs(w, h.Err(), recipes.ErrDeleted)
		require.NoError(w, h.Release(w.Context()))
		w.line()
		require.Equal(w, session, x.conn.SessionID(), "the session's end is no solution")
		w.write(w.connect()).holds()
	})
}

// CURATOR-621, CURATOR-276: a downgrade loses the place in line, and a writer that
// waits, behind or between, comes before the reader that the holder has become.
func TestTrap48_DowngradeKeepsThePlace(t *testing.T) {
	play(t, 3, func(w *harness) {
		x := w.write(w.connect())
		between := w.write(w.connect())
		behind := w.read(w.connect())
		x.downgrade()
		w.pass(timeout)
		between.waits()
		behind.waits()
		// Not even after the connections were down.
		for _, c := range []*zk.Conn{between.conn, x.conn, behind.conn} {
			w.servers(func(s *zktest.Server) { s.DropConnections(c.SessionID()) })
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
