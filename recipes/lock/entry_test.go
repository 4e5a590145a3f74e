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

// One of several goroutines fails because its connection was closed, and the error
// is the cause with which the contexts of the others are cancelled, as errgroup
// does. They must not take the error for one of their own connections.
func TestTrap06_CauseOfAnotherConnection(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		holder := w.lock(w.connect())
		other := w.connect()
		s, err := NewSemaphore(other, "/locks/two", 1, recipes.WithSessionTimeout(timeout))
		require.NoError(w, err)
		moved := zktest.Fail(zk.ErrSessionMoved)
		set := w.srv.After(zktest.Match{Op: zktest.OpMulti, Session: other.SessionID(), Nth: 1}, moved)
		back := w.srv.Before(zktest.Match{Op: zktest.OpExists, Session: other.SessionID()}, func(q *zktest.Request) zktest.Verdict {
			if ran(set) {
				return moved(q)
			}
			return zktest.Pass(q)
		})
		failed := async(func() error { return s.SetLimit(w.Context(), 2) })
		w.pass(timeout / 4)
		w.ran(set, back)
		other.Close()
		cause := <-failed
		require.ErrorIs(w, cause, recipes.ErrConnClosed)
		back.Remove()

		conn := w.connect()
		ctx, cancel := context.WithCancelCause(w.Context())
		a := async(func() error { _, err := w.mutex(conn).Lock(ctx); return err })
		w.pass(0)
		cancel(cause)
		require.True(w, errors.Is(<-a, cause))
		w.pass(time.Second)
		w.requireContenders(holder.hold.Path())
		holder.release()
	})
}
