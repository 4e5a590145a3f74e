package lock

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// namedMutex returns the mutex at /locks/<name>, which is a part of the MultiLocks of this file.
func (w *harness) namedMutex(conn *zk.Conn, name string) *Mutex {
	w.Helper()
	return w.mutexAt(conn, "/locks/"+name)
}

// multi returns a MultiLock of the mutexes with these names.
func (w *harness) multi(conn *zk.Conn, names ...string) *MultiLock {
	w.Helper()
	var parts []Part
	for _, name := range names {
		parts = append(parts, w.namedMutex(conn, name))
	}
	m, err := NewMultiLock(parts...)
	require.NoError(w, err)
	return m
}

// TestMultiLock_AcquiresInOrderOfPaths checks that a MultiLock acquires all its locks in the order of their
// paths, and releases all of them.
func TestMultiLock_AcquiresInOrderOfPaths(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		w.create("/register")
		conn := w.connect()
		h, err := w.multi(conn, "b", "c", "a").Lock(w.Context())
		require.NoError(w, err)
		require.NoError(w, h.Err())
		require.Less(w, h.TokenOf("/locks/a"), h.TokenOf("/locks/b"), "in the order of the paths")
		require.Less(w, h.TokenOf("/locks/b"), h.TokenOf("/locks/c"))
		require.Zero(w, h.TokenOf("/locks/d"))
		require.Greater(w, time.Until(h.Deadline()), time.Duration(0))
		for _, name := range []string{"a", "b", "c"} {
			_, err := w.namedMutex(w.operator, name).TryLock(w.Context())
			require.ErrorIs(w, err, ErrHeld)
		}
		responses, err := h.Multi(&zk.SetDataRequest{Path: "/register", Version: 0})
		require.NoError(w, err)
		require.Len(w, responses, 1)
		require.EqualValues(w, 1, responses[0].Stat.Version)
		_, err = h.Multi(&zk.SetDataRequest{Path: "/register", Version: 0})
		require.ErrorIs(w, err, zk.ErrBadVersion)

		// The context of a MultiHold shows Lock that the caller holds each of the locks.
		_, err = w.namedMutex(conn, "b").Lock(h.Context())
		require.ErrorIs(w, err, ErrReentrant)

		require.NoError(w, h.Release())
		require.ErrorIs(w, h.Err(), recipes.ErrReleased)
		<-h.Done()
		require.ErrorIs(w, context.Cause(h.Context()), recipes.ErrReleased)
		require.NoError(w, h.Release(), "second call")
		_, err = h.Multi()
		require.ErrorIs(w, err, recipes.ErrNotHeld)
	})
}

// TestMultiHold_EndsIfOneLockIsLost checks that a MultiHold ends as soon as one of its locks is lost.
func TestMultiHold_EndsIfOneLockIsLost(t *testing.T) {
	for i := range 3 {
		runTest(t, 1, func(w *harness) {
			conn := w.connect()
			h, err := w.multi(conn, "a", "b", "c").Lock(w.Context())
			require.NoError(w, err)
			w.remove(w.contenders()[i])
			_, err = h.Multi()
			require.ErrorIs(w, err, recipes.ErrNotHeld, "the ensemble rejects the transaction immediately")
			w.passTime(moment)
			<-h.Done()
			require.ErrorIs(w, h.Err(), recipes.ErrDeleted)
			require.NoError(w, h.Release())
			w.requireContenders()
		})
	}
}

// TestMultiHold_EndsWhenLeaseExpires checks that a MultiHold ends when the lease of its connection expires.
func TestMultiHold_EndsWhenLeaseExpires(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		conn := w.connect()
		h, err := w.multi(conn, "a", "b").Lock(w.Context())
		require.NoError(w, err)
		w.passTime(timeout)
		w.isolate(conn)
		left := time.Until(h.Deadline())
		require.LessOrEqual(w, left, timeout/2)
		w.passTime(left - 1)
		require.NoError(w, h.Err())
		w.passTime(1)
		<-h.Done()
		require.ErrorIs(w, h.Err(), recipes.ErrLeaseExpired)
		w.reconnect(conn)
		w.passTime(timeout)
		require.NoError(w, h.Release())
	})
}

// TestMultiHold_DeadlineIsEarliestOfLocks checks that the deadline of a MultiHold is the earliest deadline of
// its locks.
func TestMultiHold_DeadlineIsEarliestOfLocks(t *testing.T) {
	begin := time.Now()
	var holds []*Hold
	for _, left := range []time.Duration{2 * time.Hour, time.Hour, 3 * time.Hour} {
		g := connection.NewGrant(1, func() time.Time { return begin.Add(left) })
		holds = append(holds, &Hold{&entry{}, g})
	}
	m := newMultiHold(holds)
	require.Equal(t, begin.Add(time.Hour), m.Deadline())
	for _, stop := range m.stops {
		stop()
	}
}

// TestMultiLock_ReleasesLocksIfOneIsHeld checks that a MultiLock releases the locks that it has acquired if it
// fails to acquire the next one, and does not request the others. Curator's InterProcessMultiLock requests them
// nevertheless.
func TestMultiLock_ReleasesLocksIfOneIsHeld(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		held, err := w.namedMutex(w.operator, "b").Lock(w.Context())
		require.NoError(w, err)
		conn := w.connect()
		m := w.multi(conn, "a", "b", "c")
		_, err = m.TryLock(w.Context())
		require.ErrorIs(w, err, ErrHeld)
		w.requireContenders(held.Path())

		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		w.requireElapsed(time.Second, func() {
			_, err = m.Lock(ctx)
			require.ErrorIs(w, err, context.DeadlineExceeded)
		})
		w.passTime(0)
		w.requireContenders(held.Path())
		for _, e := range w.srv.Log() {
			require.NotContains(w, e.Created, "/locks/c/")
		}
		require.NoError(w, held.Release())
		h, err := m.TryLock(w.Context())
		require.NoError(w, err)
		require.NoError(w, h.Release())
	})
}

// TestMultiLock_ReturnsWhenContextEndsWhileDisconnected checks that Lock returns immediately when its context
// is done, without waiting for the release of the locks that it has acquired.
func TestMultiLock_ReturnsWhenContextEndsWhileDisconnected(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		held, err := w.namedMutex(w.operator, "b").Lock(w.Context())
		require.NoError(w, err)
		conn := w.connect()
		ctx, cancel := context.WithCancelCause(w.Context())
		failed := bubble.Async(func() error {
			_, err := w.multi(conn, "a", "b").Lock(ctx)
			return err
		})
		w.passTime(time.Second)
		require.Len(w, w.contenders(), 3)
		w.isolate(conn)
		w.requireElapsed(0, func() {
			cancel(errEnough)
			require.ErrorIs(w, <-failed, errEnough)
		})
		w.reconnect(conn)
		w.passTime(2 * timeout)
		w.requireContenders(held.Path())
		require.NoError(w, held.Release())
	})
}

// TestMultiLock_FailsIfGrantedLockIsLostWhileWaiting checks that Lock fails if it loses a lock that it has
// acquired while it waits for the next one.
func TestMultiLock_FailsIfGrantedLockIsLostWhileWaiting(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		held, err := w.namedMutex(w.operator, "b").Lock(w.Context())
		require.NoError(w, err)
		conn := w.connect()
		failed := bubble.Async(func() error {
			_, err := w.multi(conn, "a", "b").Lock(w.Context())
			return err
		})
		w.passTime(timeout)
		require.Len(w, w.contenders(), 3)
		w.remove(w.contenders()[0])
		w.passTime(moment)
		require.ErrorIs(w, <-failed, recipes.ErrDeleted)
		w.requireContenders(held.Path())
		require.NoError(w, held.Release())
	})
}

// TestMultiLock_DoesNotDeadlock checks that clients do not deadlock if they pass common locks to NewMultiLock
// in different orders.
func TestMultiLock_DoesNotDeadlock(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		names := []string{"a", "b", "c", "d", "e"}
		r := rand.New(rand.NewPCG(7, 7))
		var done []<-chan error
		for range 8 {
			conn := w.connect()
			var turns [][]string
			for range 10 {
				r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
				turns = append(turns, append([]string(nil), names[:2+r.IntN(3)]...))
			}
			done = append(done, bubble.Async(func() error {
				for _, names := range turns {
					h, err := w.multi(conn, names...).Lock(w.Context())
					if err != nil {
						return err
					}
					time.Sleep(moment)
					if err := h.Release(); err != nil {
						return err
					}
				}
				return nil
			}))
		}
		for _, c := range done {
			require.NoError(w, <-c)
		}
	})
}

// TestMultiLock_SharesLocksOfReaders checks that two MultiLocks that have only a lock for reading in common can
// be held together, and that they exclude a writer of that lock.
func TestMultiLock_SharesLocksOfReaders(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		sides := func(conn *zk.Conn) (read, write Part) {
			m := w.rwAt(conn, "/locks/a")
			return m.Reading(), m.Writing()
		}
		conn := w.connect()
		read, write := sides(conn)
		first, err := NewMultiLock(w.namedMutex(conn, "b"), read)
		require.NoError(w, err)
		h, err := first.Lock(w.Context())
		require.NoError(w, err)

		other := w.connect()
		read, _ = sides(other)
		second, err := NewMultiLock(read, w.namedMutex(other, "c"))
		require.NoError(w, err)
		g, err := second.TryLock(w.Context())
		require.NoError(w, err, "readers do not exclude each other")
		require.NoError(w, g.Release())

		third, err := NewMultiLock(write)
		require.NoError(w, err)
		_, err = third.TryLock(w.Context())
		require.ErrorIs(w, err, ErrHeld)
		_, err = third.Lock(h.Context())
		require.ErrorIs(w, err, ErrUpgrade)
		require.NoError(w, h.Release())
		h, err = third.Lock(w.Context())
		require.NoError(w, err)
		require.NoError(w, h.Release())
	})
}

// TestNewMultiLock_RejectsInvalidParts checks that NewMultiLock rejects parts that cannot be acquired together.
func TestNewMultiLock_RejectsInvalidParts(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		rw := w.rw(w.operator)
		for name, parts := range map[string][]Part{
			"nothing":                         nil,
			"nil":                             {nil},
			"the same lock twice":             {w.namedMutex(w.operator, "a"), w.namedMutex(w.operator, "b"), w.namedMutex(w.operator, "a")},
			"reading and writing of one lock": {rw.Reading(), rw.Writing()},
			"several connections":             {w.namedMutex(w.operator, "a"), w.namedMutex(w.connect(), "b")},
		} {
			_, err := NewMultiLock(parts...)
			require.ErrorIs(w, err, recipes.ErrInvalid, name)
		}
	})
}

// TestMultiHold_ReleaseIsConfirmedAfterAllLocks checks that Release of a MultiHold returns nil only when the
// release of each lock is confirmed.
func TestMultiHold_ReleaseIsConfirmedAfterAllLocks(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		conn := w.connect()
		h, err := w.multi(conn, "a", "b").Lock(w.Context())
		require.NoError(w, err)
		lost := w.srv.Before(zktest.Match{Op: zktest.OpDelete, Path: "/locks/a/*"}, zktest.Cut)
		require.ErrorIs(w, h.Release(), recipes.ErrUnconfirmed)
		require.ErrorIs(w, h.Err(), recipes.ErrReleased)
		lost.Remove()
		w.passTime(timeout)
		require.NoError(w, h.Release())
		w.requireContenders()
	})
}

// TestMultiLock_FailsIfLockIsLostDuringLastAcquisition checks that Lock fails if it loses a lock while it waits
// for the last one, even if the last one is granted at the same time.
func TestMultiLock_FailsIfLockIsLostDuringLastAcquisition(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		var first *Hold
		_, err := w.multi(w.connect(), "a", "b").acquireAll(w.Context(), func(p lockPart, ctx context.Context) (*Hold, error) {
			if first == nil {
				var err error
				first, err = p.lock(ctx)
				return first, err
			}
			h, err := p.lock(w.Context()) // the context ctx is done when the first lock is lost, so it is not used here
			w.remove(w.contenders()[0])
			<-first.Done()
			return h, err
		})
		require.ErrorIs(w, err, recipes.ErrDeleted)
		for _, name := range []string{"a", "b"} {
			h, err := w.namedMutex(w.operator, name).TryLock(w.Context())
			require.NoError(w, err, "both locks are free")
			require.NoError(w, h.Release())
		}
	})
}
