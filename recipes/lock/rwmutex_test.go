package lock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// Nobody is overtaken by one whom it excludes: a reader behind a writer who waits
// waits too.
func TestReadersAndWritersTakeTurns(t *testing.T) {
	for _, layout := range []recipes.Layout{recipes.Curator, recipes.Kazoo} {
		play(t, 1, func(w *world) {
			as := recipes.WithLayout(layout)
			r1, r2 := w.read(w.connect(), as), w.read(w.connect(), as)
			r1.holds()
			r2.holds()
			w1 := w.write(w.connect(), as)
			r3 := w.read(w.connect(), as)
			w2 := w.write(w.connect(), as)
			r1.release()
			w1.waits()
			r3.waits()
			r2.release()
			w1.holds()
			r3.waits()
			w1.release()
			r3.holds()
			w2.waits()
			r3.release()
			w2.holds()
		})
	}
}

// Readers of one layout see writers of the other.
func TestReadersAndWritersOfBothLayouts(t *testing.T) {
	play(t, 1, func(w *world) {
		kazoo := recipes.WithLayout(recipes.Kazoo)
		first := w.write(w.connect(), kazoo)
		r := w.read(w.connect())
		second := w.write(w.connect())
		last := w.read(w.connect(), kazoo)
		first.release()
		r.holds()
		second.waits()
		last.waits()
		r.release()
		second.release()
		last.holds()
	})
}

func TestTryRWMutex(t *testing.T) {
	play(t, 1, func(w *world) {
		conn := w.connect()
		m := w.rw(conn)
		_, err := m.TryRLock(w.Context())
		require.NoError(w, err)
		r, err := m.TryRLock(w.Context())
		require.NoError(w, err, "readers let each other by")
		w.untidy = true
		_, err = m.TryLock(w.Context())
		require.ErrorIs(w, err, ErrHeld)
		writer := w.write(w.connect())
		_, err = m.TryRLock(w.Context())
		require.ErrorIs(w, err, ErrHeld, "a writer waits")
		writer.waits()
		require.NoError(w, r.Release(w.Context()))
	})
}

func TestDowngrade(t *testing.T) {
	for _, layout := range []recipes.Layout{recipes.Curator, recipes.Kazoo} {
		play(t, 1, func(w *world) {
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
	play(t, 1, func(w *world) {
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
	play(t, 1, func(w *world) {
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
	play(t, 1, func(w *world) {
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
	each(t, append(losses, answers...), 1, func(w *world, l loss) {
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
	play(t, 1, func(w *world) {
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
	play(t, 1, func(w *world) {
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
		do   func(w *world, x *writer)
	}{
		{"release", func(w *world, x *writer) { go x.hold.Release(context.Background()) }},
		{"znode deleted", func(w *world, x *writer) {
			w.excused = true
			for _, p := range w.contenders() {
				w.remove(p)
			}
		}},
		{"session expired", func(w *world, x *writer) { w.expire(x.conn) }},
		{"connection closed", func(w *world, x *writer) { go x.conn.Close() }},
	} {
		for _, applied := range []bool{true, false} {
			t.Run(end.name, func(t *testing.T) {
				play(t, 3, func(w *world) {
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
	play(t, 1, func(w *world) {
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
	play(t, 1, func(w *world) {
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
	play(t, 1, func(w *world) {
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

// A reader that asks to write would wait for itself.
func TestUpgradeIsRefused(t *testing.T) {
	play(t, 1, func(w *world) {
		conn := w.connect()
		m := w.rw(conn)
		r := w.read(conn).holds()
		ctx, cancel := context.WithTimeout(r.Context(), time.Hour)
		defer cancel()
		w.elapsed(0, func() {
			_, err := m.Lock(ctx)
			require.ErrorIs(w, err, ErrUpgrade)
			_, err = m.TryLock(ctx)
			require.ErrorIs(w, err, ErrUpgrade)
			_, err = m.RLock(ctx)
			require.ErrorIs(w, err, ErrReentrant, "a writer that waits between would be waited for")
		})
		// Of another lock nothing is known.
		other, err := NewRWMutex(conn, "/locks/two", recipes.WithSessionTimeout(timeout))
		require.NoError(w, err)
		x, err := other.Lock(ctx)
		require.NoError(w, err)
		_, err = other.RLock(x.Context())
		require.ErrorIs(w, err, ErrReentrant)
		require.NoError(w, x.Downgrade(w.Context()))
		_, err = other.Lock(x.Context())
		require.ErrorIs(w, err, ErrUpgrade)
		require.NoError(w, x.Release(w.Context()))
	})
}

// Without that context the upgrade waits, and ends with its context.
func TestUpgradeUnseenEndsWithItsContext(t *testing.T) {
	play(t, 1, func(w *world) {
		conn := w.connect()
		r := w.read(conn)
		r.holds()
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		_, err := w.rw(conn).Lock(ctx)
		require.ErrorIs(w, err, context.DeadlineExceeded)
		w.pass(0)
		w.line(r.hold.Path())
	})
}

// Readers that give up leave one watch for each connection on a writer that stays.
func TestReadersLeaveOneWatch(t *testing.T) {
	play(t, 1, func(w *world) {
		x := w.write(w.connect())
		x.holds()
		stays, conn := w.read(w.connect()), w.connect()
		before := w.watched()
		for range 5 {
			r, other := w.read(conn), w.read(conn)
			r.waits()
			other.waits()
			r.cancel()
			other.cancel()
			w.pass(0)
			require.True(w, errors.Is(r.failed(), context.Canceled))
			require.ElementsMatch(w, append(before, x.hold.Path()), w.watched())
			require.Equal(w, 1, clientWatches(conn))
		}
		stays.waits()
		x.release()
		stays.holds()
		require.Zero(w, clientWatches(conn))
	})
}

// A reader that gives up costs one request, however many readers wait behind the same
// writer.
func TestReadersThatGiveUpWakeNoOthers(t *testing.T) {
	play(t, 1, func(w *world) {
		x := w.write(w.connect())
		x.holds()
		const readers = 20
		var all []*asked
		for i := range readers {
			conn := w.connect()
			for range 1 + i%2 {
				r := w.read(conn)
				r.waits()
				all = append(all, r)
			}
		}
		w.srv.ResetLog()
		for _, r := range all[1:] {
			r.cancel()
		}
		w.pass(0)
		requests := w.srv.Log().Requests()
		require.Len(w, requests, len(all)-1, requests)
		require.Equal(w, len(all)-1, requests.Count(zktest.OpDelete))
		x.release()
		all[0].holds()
	})
}
