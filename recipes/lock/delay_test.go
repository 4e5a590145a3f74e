package lock

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const lockDelay = 10 * time.Second

// Whatever ends a hold but Release, the next one waits; and the one after that
// does not.
func TestLockDelay(t *testing.T) {
	for _, end := range []struct {
		name string
		do   func(w *harness, a *call)
	}{
		{"session expired", func(w *harness, a *call) { w.expire(a.conn) }},
		{"znode deleted", func(w *harness, a *call) { w.remove(a.hold.Path()) }},
		{"connection closed", func(_ *harness, a *call) { a.conn.Close() }},
	} {
		t.Run(end.name, func(t *testing.T) {
			play(t, 1, func(w *harness) {
				with := WithLockDelay(lockDelay)
				first, second, third := w.lock(w.connect(), with), w.lock(w.connect(), with), w.lock(w.connect(), with)
				first.holds()
				require.Len(w, w.marks(), 1)
				w.pass(timeout)
				end.do(w, first)
				w.pass(lockDelay - 1)
				second.waits()
				_, err := w.mutex(w.operator, with).TryLock(w.Context())
				require.ErrorIs(w, err, ErrHeld)
				w.pass(1)
				second.holds()
				require.Len(w, w.marks(), 1, "only the own one")
				second.release()
				require.Equal(w, third.at, time.Now(), "at once after a release")
				third.release()
				require.Empty(w, w.marks())
			})
		})
	}
}

// The lease lapses, the session does not: the holder gives up its place, and that
// is no release.
func TestLockDelayAfterALapse(t *testing.T) {
	play(t, 1, func(w *harness) {
		with := WithLockDelay(lockDelay)
		first, second := w.lock(w.connect(), with), w.lock(w.connect(), with)
		h := first.holds()
		w.srv.Before(zktest.Match{Op: zktest.OpMulti, Session: first.conn.SessionID()}, zktest.Fail(zk.ErrSessionMoved))
		lapsed := <-doneAt(h)
		require.ErrorIs(w, h.Err(), recipes.ErrLeaseExpired)
		w.pass(0)
		w.line(w.contenders()[0]) // the second's
		require.NoError(w, h.Release(w.Context()), "too late for a release")
		require.Len(w, w.marks(), 1)
		w.pass(time.Until(lapsed.Add(lockDelay - 1)))
		second.waits()
		w.pass(1)
		second.holds()
	})
}

// A process that was stopped finds out by the clock, and releases then: that is no
// release in time either.
func TestLockDelayAfterALateRelease(t *testing.T) {
	play(t, 1, func(w *harness) {
		a := w.lock(w.connect(), WithLockDelay(lockDelay))
		h := a.holds()
		h.end(recipes.ErrLeaseExpired) // as Err does by the clock; the line has not noticed
		require.NoError(w, h.Release(w.Context()))
		require.Len(w, w.marks(), 1)
		next := w.lock(w.connect(), WithLockDelay(lockDelay))
		w.pass(lockDelay - 1)
		next.waits()
		w.pass(1)
		next.holds()
	})
}

// Nobody was there to see the end: who comes later counts from then. The mark keeps
// the lock's znode from being removed as empty.
func TestLockDelayForANewcomer(t *testing.T) {
	play(t, 1, func(w *harness) {
		with := WithLockDelay(lockDelay)
		first := w.lock(w.connect(), with)
		w.expire(first.conn)
		w.pass(5 * time.Minute)
		require.Len(w, w.marks(), 1)
		next := w.lock(w.connect(), with)
		w.pass(lockDelay - 1)
		next.waits()
		w.pass(1)
		next.holds()
	})
}

// TryLock waits for the delay, or those who only try would never get the lock.
func TestLockDelayOfATry(t *testing.T) {
	play(t, 1, func(w *harness) {
		with := WithLockDelay(lockDelay)
		first := w.lock(w.connect(), with)
		w.expire(first.conn)
		w.pass(0)
		w.elapsed(lockDelay, func() {
			h, err := w.mutex(w.operator, with).TryLock(w.Context())
			require.NoError(w, err)
			require.NoError(w, h.Release(w.Context()))
		})
	})
}

// A grant that nobody has received was not lost, nor was a wait that was given up.
func TestLockDelayOfOneWhoGivesUp(t *testing.T) {
	play(t, 1, func(w *harness) {
		with := WithLockDelay(lockDelay)
		first := w.lock(w.connect(), with)
		second := w.lock(w.connect(), with)
		third := w.lock(w.connect(), with)
		second.cancel()
		w.pass(0)
		first.release()
		third.release()
		require.Empty(w, w.marks())

		// During the delay.
		again := w.lock(w.connect(), with)
		w.expire(again.conn)
		w.pass(0)
		waits := w.lock(w.connect(), with)
		w.pass(lockDelay / 2)
		waits.cancel()
		w.pass(0)
		w.line()
		require.Len(w, w.marks(), 1)
		last := w.lock(w.connect(), with)
		w.pass(lockDelay - 1)
		last.waits()
		w.pass(1)
		last.release()

		// With the mark, before the grant is received.
		ctx, cancel := context.WithCancel(w.Context())
		waiter := w.mutex(w.connect(), with).Join(ctx)
		w.pass(0)
		require.Len(w, w.marks(), 1)
		cancel()
		w.pass(0)
		_, err := waiter.Wait()
		require.ErrorIs(w, err, context.Canceled)
		require.Empty(w, w.marks())
	})
}

// The outcome of the transaction that leaves the mark is lost, or that of the
// release.
func TestLockDelayAnswersLost(t *testing.T) {
	each(t, append(slices.Clone(losses[:2]), answers...), 3, func(w *harness, l loss) {
		with := WithLockDelay(lockDelay)
		for k := 1; k <= 2; k++ { // mark, release
			conn := w.connect()
			lost := l.set(w.srv, zktest.Match{Op: zktest.OpMulti, Session: conn.SessionID(), Path: node + "/held*", Nth: k})
			a := w.lock(conn, with)
			w.pass(timeout / 2)
			a.holds()
			require.Len(w, w.marks(), 1)
			require.NoError(w, a.hold.Release(w.Context()))
			w.ran(lost)
			require.Empty(w, w.marks())
		}
	})
}

// One whose znode goes before it has the lock leaves no mark, for which others would
// wait.
func TestLockDelayOfOneWhoIsDeleted(t *testing.T) {
	play(t, 1, func(w *harness) {
		with := WithLockDelay(lockDelay)
		gone := w.srv.Before(zktest.Match{Op: zktest.OpMulti, Path: node + "/held*", Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			w.remove(w.contenders()[0])
			return zktest.Pass(q)
		})
		a := w.lock(w.connect(), with)
		w.pass(moment)
		w.ran(gone)
		require.ErrorIs(w, a.failed(), recipes.ErrDeleted)
		require.Empty(w, w.marks())
	})
}

// Who may not leave a mark is told, and does not hold the lock.
func TestLockDelayWithoutPermission(t *testing.T) {
	play(t, 1, func(w *harness) {
		a := w.lock(w.connect(), WithLockDelay(lockDelay))
		refused := w.srv.Before(zktest.Match{Op: zktest.OpMulti, Path: node + "/held*"}, zktest.Fail(zk.ErrNoAuth))
		a.release()
		b := w.lock(w.connect(), WithLockDelay(lockDelay))
		w.pass(lockDelay + moment)
		require.ErrorIs(w, b.failed(), recipes.ErrPermission)
		w.ran(refused)
		refused.Remove()
		require.Len(w, w.marks(), 1, "of the one that could not take it away")
		w.line()
	})
}

// A lapse while it waits for the delay costs nothing: nothing was granted.
func TestLockDelaySurvivesALapse(t *testing.T) {
	play(t, 1, func(w *harness) {
		with := WithLockDelay(lockDelay)
		first := w.lock(w.connect(), with)
		w.expire(first.conn)
		w.pass(0)
		next := w.lock(w.connect(), with)
		refused := w.srv.Before(zktest.Match{Op: zktest.OpMulti, Session: next.conn.SessionID()}, zktest.Fail(zk.ErrSessionMoved))
		w.pass(lockDelay - timeout)
		refused.Remove()
		next.waits()
		w.pass(timeout)
		next.holds()
	})
}

// Readers wait for a writer that was lost, and a writer for readers; readers do not
// wait for readers.
func TestLockDelayOfReadersAndWriters(t *testing.T) {
	play(t, 1, func(w *harness) {
		with := WithLockDelay(lockDelay)
		r1 := w.read(w.connect(), with)
		r2 := w.read(w.connect(), with)
		require.Len(w, w.marks(), 2)
		w.expire(r1.conn)
		w.pass(0)
		r3 := w.read(w.connect(), with)
		r3.holds()
		x := w.write(w.connect(), with)
		r2.release()
		r3.release()
		require.Len(w, w.marks(), 1)
		w.pass(lockDelay - 1)
		x.waits()
		w.pass(1)
		x.holds()

		r4, r5 := w.read(w.connect(), with), w.read(w.connect(), with)
		w.expire(x.conn)
		w.pass(lockDelay - 1)
		r4.waits()
		r5.waits()
		w.pass(1)
		r4.holds()
		r5.holds()
		require.Len(w, w.marks(), 2)
		r4.release()
		r5.release()
		require.Empty(w, w.marks())
	})
}

// The mark stays with a hold that was downgraded.
func TestLockDelayOfADowngrade(t *testing.T) {
	play(t, 1, func(w *harness) {
		with := WithLockDelay(lockDelay)
		x := w.write(w.connect(), with)
		x.downgrade()
		r := w.read(w.connect(), with)
		r.holds()
		require.Len(w, w.marks(), 2)
		r.release()
		x.release()
		require.Empty(w, w.marks())

		x = w.write(w.connect(), with)
		x.downgrade()
		w.expire(x.conn)
		w.pass(0)
		next := w.write(w.connect(), with)
		w.pass(lockDelay - 1)
		next.waits()
		w.pass(1)
		next.holds()
	})
}

func TestStaleMarkers(t *testing.T) {
	const a, b, c = "0000000a-0000-0000-0000-000000000000", "0000000b-0000-0000-0000-000000000000", "0000000c-0000-0000-0000-000000000000"
	children := []string{"held-w-" + a, "held-r-" + b, "held-w-" + c, "_c_" + c + "-__READ__0000000001", "held", "held-w"}
	require.Equal(t, []string{"held-w-" + a, "held-r-" + b}, staleMarkers(children, "held-w-x"))
	require.Equal(t, []string{"held-w-" + a}, staleMarkers(children, "held-r-x"))
	require.Equal(t, []string{"held-r-" + b}, staleMarkers(children, "held-w-"+a))
}

// A release in time is one, also while it is not known whether the downgrade was
// carried out.
func TestLockDelayOfAReleaseDuringADowngrade(t *testing.T) {
	for _, applied := range []bool{true, false} {
		play(t, 1, func(w *harness) {
			with := WithLockDelay(lockDelay)
			x := w.write(w.connect(), with)
			x.holds()
			match := zktest.Match{Op: zktest.OpMulti, Path: x.asReader()}
			moved := zktest.Fail(zk.ErrSessionMoved)
			if match.Nth = 1; applied {
				w.srv.After(match, moved)
			} else {
				w.srv.Before(match, moved)
			}
			ctx, cancel := context.WithCancel(w.Context())
			down := async(func() error { return x.write.Downgrade(ctx) })
			w.pass(0)
			cancel()
			require.ErrorIs(w, <-down, recipes.ErrUnconfirmed)
			require.NoError(w, x.hold.Release(w.Context()))
			require.ErrorIs(w, x.hold.Err(), ErrReleased)
			require.Empty(w, w.marks())
			w.write(w.connect(), with).holds()
		})
	}
}

// What the documentation of WithLockDelay says: readers do not wait for a reader that was
// lost, so its mark stays for the next writer.
func TestLockDelayOfALostReader(t *testing.T) {
	play(t, 1, func(w *harness) {
		with := WithLockDelay(lockDelay)
		lost := w.read(w.connect(), with)
		lost.holds()
		w.expire(lost.conn)
		w.pass(moment)
		w.read(w.connect(), with).release()
		require.Len(w, w.marks(), 1)
		x := w.write(w.connect(), with)
		w.pass(lockDelay - 1)
		x.waits()
		w.pass(1)
		x.release()
		require.Empty(w, w.marks())
	})
}

// Nobody has received the grant, and it was not lost: the cause for which it was not
// waited for is the end of another hold.
func TestLockDelayOfOneWhoGivesUpForALoss(t *testing.T) {
	play(t, 1, func(w *harness) {
		ctx, cancel := context.WithCancelCause(w.Context())
		waiter := w.mutex(w.connect(), WithLockDelay(lockDelay)).Join(ctx)
		w.pass(0)
		require.Len(w, w.marks(), 1)
		cancel(recipes.ErrLeaseExpired)
		w.pass(0)
		_, err := waiter.Wait()
		require.ErrorIs(w, err, recipes.ErrLeaseExpired)
		_, err = waiter.Position(w.Context())
		require.ErrorIs(w, err, recipes.ErrLeaseExpired)
		require.Empty(w, w.marks())
		w.line()
	})
}
