package lock

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A grant ends before its znode is deleted: Done is closed before another client can hold
// the lock.
func TestHold_EndsBeforeZnodeIsDeleted(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		a := w.lock(w.connect())
		h := a.holds()
		ended, leave := false, h.stop
		var first sync.Once // the contender's goroutine calls it as well
		h.stop = func(reason error) {
			first.Do(func() { ended = h.Err() != nil })
			leave(reason)
		}
		a.release()
		require.True(w, ended)
	})
}

// kazoo #291, #134, #315: users misunderstand which thread holds a lock, and whether it can be
// acquired again. Here a hold is a value, which any goroutine can use.
func TestTrap54_HoldsAreValues(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		conn := w.connect()
		m := w.mutex(conn)
		first := w.startCall(conn, m.Lock)
		w.pass(0)
		h := first.holds()
		second := w.startCall(conn, m.Lock) // the same Mutex and connection
		w.pass(timeout)
		second.waits()
		_, err := m.Lock(h.Context())
		require.ErrorIs(w, err, ErrReentrant, "Lock would wait for the caller's hold")
		_, err = m.TryLock(h.Context())
		require.ErrorIs(w, err, ErrReentrant)

		// Any goroutine can release a hold, repeatedly. That does not affect other holds.
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { require.NoError(w, h.Release(w.Context())) })
		}
		all.Wait()
		w.pass(0)
		g := second.holds()
		require.NoError(w, h.Release(w.Context()))
		w.pass(time.Second)
		require.NoError(w, g.Err())
		require.ErrorIs(w, h.Err(), ErrReleased)
		_, err = m.Lock(h.Context())
		require.ErrorIs(w, err, ErrReleased, "the context of a released hold does not prevent another acquisition")
	})
}
