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
