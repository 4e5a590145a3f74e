package lock

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// describeContenders describes the contenders of a semaphore, one string for each.
func (w *harness) describeContenders(s *Semaphore) (found []string) {
	w.Helper()
	all, err := s.Contenders(w.Context())
	require.NoError(w, err)
	for _, c := range all {
		found = append(found, fmt.Sprintf("%s %d %v", c.Name, c.Leases, c.Holds))
	}
	return found
}

// TestSemaphore_ContendersShowsHoldersAndWaiters checks that Contenders shows the holders of leases with the
// numbers of their leases, and the contenders that wait.
func TestSemaphore_ContendersShowsHoldersAndWaiters(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		s := w.semaphore(w.operator, 3)
		require.Empty(w, w.describeContenders(s), "the znode does not exist")
		contend := func(name string, n int) *call { return w.acquire(w.semaphore(w.connect(), 3, WithName(name)), n) }
		a, b := contend("a", 2), contend("b", 1)
		c, d := contend("c", 2), contend("d", 1)
		w.create(node + "/other-0000000001")
		require.Equal(w, []string{"a 2 true", "b 1 true", "c 2 false", "d 1 false"}, w.describeContenders(s))
		all, err := s.Contenders(w.Context())
		require.NoError(w, err)
		require.Equal(w, a.requireHolds().Path(), all[0].Path)
		require.Equal(w, a.requireHolds().Token(), all[0].Token)
		w.setLimit(5)
		w.requireHolding(b, c)
		require.Equal(w, []string{"a 2 true", "b 1 true", "c 2 true", "d 1 false"}, w.describeContenders(s))
		a.release()
		d.requireHolds()
		require.Equal(w, []string{"b 1 true", "c 2 true", "d 1 true"}, w.describeContenders(s))
		w.remove(node + "/other-0000000001")
	})
}

// TestSemaphoreMutex_ContendersListsLeasesThenWaiters checks that Contenders lists each lease as a contender if
// the semaphore has the protocol of Curator or kazoo, and behind the leases the contenders that wait for the
// mutex.
func TestSemaphoreMutex_ContendersListsLeasesThenWaiters(t *testing.T) {
	for kind, layout := range otherLayouts {
		t.Run(kind, func(t *testing.T) {
			runTest(t, 1, func(w *harness) {
				s := w.semaphore(w.operator, 2, layout)
				require.Empty(w, w.describeContenders(s))
				contend := func(name string, n int) *call {
					return w.acquire(w.semaphore(w.connect(), 2, layout, WithName(name)), n)
				}
				a := contend("a", 2)
				a.requireHolds()
				b, c := contend("b", 1), contend("c", 1)
				w.requireWaiting(b, c)
				require.Equal(w, []string{"a 1 true", "a 1 true", "b 1 false", "c 0 false"}, w.describeContenders(s))
				all, err := s.Contenders(w.Context())
				require.NoError(w, err)
				require.ErrorIs(w, s.RequestRelease(w.Context(), all[3]), recipes.ErrNotHeld)
				require.ErrorIs(w, s.RequestRelease(w.Context(), Contender{Path: "/else"}), recipes.ErrInvalid)

				// A hold also reports a request at a lease whose path is not Path of the hold. This lease can be the
				// first or the second one.
				require.False(w, isReleaseRequested(a.hold))
				for _, lease := range all[:2] {
					if lease.Path != a.hold.Path() {
						require.NoError(w, s.RequestRelease(w.Context(), lease))
					}
				}
				w.passTime(0)
				require.True(w, isReleaseRequested(a.hold))
				a.release()
				w.requireHolding(b, c)
				waiter := s.Join(w.Context(), 1)
				_, err = waiter.Wait()
				require.ErrorIs(w, err, recipes.ErrInvalid)
				_, err = waiter.Position(w.Context())
				require.ErrorIs(w, err, recipes.ErrInvalid)
			})
		})
	}
}

// TestSemaphore_RequestReleaseReachesWaiter checks that a contender that waits receives a request to release,
// although it writes its znode to wake its follower when it is granted its leases. The reply to this write can
// be lost.
func TestSemaphore_RequestReleaseReachesWaiter(t *testing.T) {
	forEachLoss(t, append([]bubble.Fault{{Name: "none"}}, briefLosses...), 1, func(w *harness, l bubble.Fault) {
		a, b, c := w.contend(1, 1), w.contend(1, 1), w.contend(1, 1)
		s := w.semaphore(w.operator, 1)
		all, err := s.Contenders(w.Context())
		require.NoError(w, err)
		require.NoError(w, s.RequestRelease(w.Context(), all[1]))
		w.passTime(0)
		if l.Set != nil {
			lost := l.Set(w.srv, zktest.Match{Op: zktest.OpSetData, Path: b.path(), Nth: 1})
			defer w.requireCalled(lost)
		}
		a.release()
		w.passTime(timeout / 2)
		b.requireHolds()
		c.requireWaits()
		require.False(w, isReleaseRequested(b.hold))
		w.passTime(0)
		require.True(w, isReleaseRequested(b.hold))
		b.release()
		require.False(w, isReleaseRequested(c.requireHolds()))
		require.ErrorIs(w, s.RequestRelease(w.Context(), all[0]), recipes.ErrNotHeld)
	})
}

// TestSemaphore_WakeDoesNotOverwriteReleaseRequest checks that a contender that writes its znode to wake its
// follower does not overwrite a request to release that another client has written since the contender has read
// its znode.
func TestSemaphore_WakeDoesNotOverwriteReleaseRequest(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		a, b, c := w.contend(1, 1), w.contend(1, 1), w.contend(1, 1)
		w.set(b.path(), "x")
		again := w.srv.After(zktest.Match{Op: zktest.OpGetData, Path: b.path(), Session: b.session(), Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			w.set(q.Path, releaseRequest)
			return zktest.Pass(q)
		})
		a.release()
		w.requireCalled(again)
		require.False(w, isReleaseRequested(b.requireHolds()))
		w.passTime(0)
		require.True(w, isReleaseRequested(b.hold))
		c.requireWaits()
		b.release()
		c.requireHolds()
	})
}

// TestSemaphore_PositionCountsOnlyContenders checks that Position does not count children that are not
// contenders, and that Wait returns the hold.
func TestSemaphore_PositionCountsOnlyContenders(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		a, b := w.contend(2, 1), w.contend(2, 1)
		ctx, cancel := context.WithCancelCause(w.Context())
		waiter := w.semaphore(w.connect(), 2).Join(ctx, 2)
		w.setLimit(2) // creates two children that are not contenders: the limit, and the record of the transaction
		position := func() int {
			n, err := waiter.Position(w.Context())
			require.NoError(w, err)
			return n
		}
		require.Equal(w, 2, position())
		a.release()
		require.Equal(w, 1, position())
		b.release()
		w.passTime(0)
		h, err := waiter.Wait()
		require.NoError(w, err)
		require.Zero(w, position())
		require.NoError(w, h.Release())
		for n, want := range map[int]error{0: recipes.ErrInvalid, 3: ErrOverLimit} {
			_, err = w.semaphore(w.operator, 2).Join(ctx, n).Wait()
			require.ErrorIs(w, err, want)
		}
		cancel(errEnough)
		_, err = w.semaphore(w.operator, 2).Join(ctx, 1).Wait()
		require.ErrorIs(w, err, errEnough)
	})
}

// TestMultiLock_AcquiresLeasesAndLocks checks that a MultiLock acquires leases of a semaphore together with
// mutexes.
func TestMultiLock_AcquiresLeasesAndLocks(t *testing.T) {
	for kind, options := range map[string][]Option{"": nil, "Curator": {WithCuratorLayout()}, "kazoo": {recipes.WithKazooLayout()}} {
		t.Run(kind, func(t *testing.T) {
			runTest(t, 1, func(w *harness) {
				open := func(names ...string) *MultiLock {
					conn := w.connect()
					parts := []Part{w.semaphore(conn, 3, options...).Leases(2)}
					for _, name := range names {
						parts = append(parts, w.namedMutex(conn, name))
					}
					m, err := NewMultiLock(parts...)
					require.NoError(w, err)
					return m
				}
				h, err := open("a").Lock(w.Context())
				require.NoError(w, err)
				require.NotZero(w, h.TokenOf(node))
				_, err = h.Multi()
				require.NoError(w, err)
				_, err = open("b").TryLock(w.Context())
				require.ErrorIs(w, err, ErrHeld, "3 leases are not enough for 4")
				other := open("b")
				next := bubble.Async(func() error {
					h, err := other.Lock(w.Context())
					if err == nil {
						err = h.Release()
					}
					return err
				})
				w.passTime(0)
				require.Empty(w, next)
				require.NoError(w, h.Release())
				w.passTime(0)
				require.NoError(w, <-next)
				_, err = NewMultiLock(w.semaphore(w.operator, 3, options...).Leases(0))
				require.ErrorIs(w, err, recipes.ErrInvalid)
			})
		})
	}
}

// TestMultiHold_RejectsTransactionIfOneLeaseIsDeleted checks that a transaction of a MultiHold is not applied
// after one of several leases of Curator's protocol was deleted.
func TestMultiHold_RejectsTransactionIfOneLeaseIsDeleted(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		conn := w.connect()
		m, err := NewMultiLock(w.semaphore(conn, 2, WithCuratorLayout()).Leases(2))
		require.NoError(w, err)
		h, err := m.Lock(w.Context())
		require.NoError(w, err)
		own := h.holds[0]
		other := own.otherPaths[0]
		before := w.srv.Before(zktest.Match{Op: zktest.OpMulti, Session: conn.SessionID(), Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			w.remove(other)
			return zktest.Pass(q)
		})
		_, err = h.Multi()
		w.requireCalled(before)
		require.ErrorIs(w, err, recipes.ErrNotHeld)
		_ = h.Release()
	})
}
