package lock

import (
	"context"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// The downgrade is carried out, its reply is lost, and ZooKeeper refuses to repeat it:
// the new znode must not stay behind unknown and block writers.
func TestDowngradeAnswerLostThenRefused(t *testing.T) {
	play(t, 1, func(w *world) {
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

// A release in time is one, also while it is not known whether the downgrade was
// carried out.
func TestLockDelayOfAReleaseDuringADowngrade(t *testing.T) {
	for _, applied := range []bool{true, false} {
		play(t, 1, func(w *world) {
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

// What the documentation of Revoked says: a request goes with the old znode, unless it
// was seen before.
func TestRevokeBeforeADowngrade(t *testing.T) {
	for _, seen := range []bool{true, false} {
		play(t, 1, func(w *world) {
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

// What the documentation of WithLockDelay says: readers do not wait for a reader that was
// lost, so its mark stays for the next writer.
func TestLockDelayOfALostReader(t *testing.T) {
	play(t, 1, func(w *world) {
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
