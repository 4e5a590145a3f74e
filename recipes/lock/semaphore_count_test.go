package lock

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/value"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const countPath = "/limits/one"

// semaphoreWithCount returns a semaphore with WithSharedCount.
func (w *harness) semaphoreWithCount(conn *zk.Conn, limit int) *Semaphore {
	w.Helper()
	return w.semaphore(conn, limit, WithCuratorLayout(), WithSharedCount(countPath))
}

// setCount writes the count as a Java program does.
func (w *harness) setCount(n int64) {
	w.Helper()
	c, err := value.NewCounter(w.operator, countPath, value.WithInt32())
	require.NoError(w, err)
	require.NoError(w, c.Set(w.Context(), n))
	w.passTime(0)
}

// TestSharedCount_ContendersFollowLimit checks that contenders follow the limit that another program writes to
// the SharedCount.
func TestSharedCount_ContendersFollowLimit(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		contend := func(n int) *call { return w.acquire(w.semaphoreWithCount(w.connect(), 1), n) }
		limit := func() int {
			n, err := w.semaphoreWithCount(w.operator, 9).Limit(w.Context())
			require.NoError(w, err)
			return n
		}
		require.Equal(w, 9, limit(), "no limit is stored")
		a := contend(1)
		a.requireHolds()
		require.Equal(w, 1, limit(), "the first contender has stored its limit")
		b, c := contend(1), contend(1)
		w.requireWaiting(b, c)
		w.setCount(2)
		b.requireHolds()
		d := contend(2)
		w.requireWaiting(c, d)
		require.NoError(w, w.semaphoreWithCount(w.operator, 1).SetLimit(w.Context(), 3))
		w.passTime(0)
		c.requireHolds()
		d.requireWaits()
		w.setCount(2) // the contender d is next: it must not be admitted by the earlier limit
		a.release()
		d.requireWaits()
		b.release()
		d.requireWaits()
		c.release()
		d.requireHolds()
		_, err := w.semaphoreWithCount(w.operator, 1).TryAcquire(w.Context(), 1)
		require.ErrorIs(w, err, ErrHeld)
		w.setCount(3)
		h, err := w.semaphoreWithCount(w.operator, 1).TryAcquire(w.Context(), 1)
		require.NoError(w, err)
		require.NoError(w, h.Release())
		d.release()
		w.allowLeftovers = true // the client library cannot remove the watch on the count
		w.requireContenders()
	})
}

// TestSharedCount_RejectsRequestAboveLimit checks that Acquire returns ErrOverLimit if the SharedCount falls
// below its request, or below 0, and that leases that were granted before are not taken away.
func TestSharedCount_RejectsRequestAboveLimit(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		w.allowLeftovers = true
		a := w.acquire(w.semaphoreWithCount(w.connect(), 2), 1)
		b := w.acquire(w.semaphoreWithCount(w.connect(), 2), 2)
		a.requireHolds()
		b.requireWaits()
		w.setCount(1)
		b.requireFails(ErrOverLimit)
		w.setCount(-1)
		w.acquire(w.semaphoreWithCount(w.connect(), 2), 1).requireFails(ErrOverLimit)
		limit, err := w.semaphoreWithCount(w.operator, 2).Limit(w.Context())
		require.NoError(w, err)
		require.Zero(w, limit)
		require.NoError(w, a.requireHolds().Err(), "no lease is taken away")
	})
}

// TestSharedCount_UnknownFormatFailsAcquire checks that Acquire and TryAcquire return ErrFormat if the
// SharedCount has another format.
func TestSharedCount_UnknownFormatFailsAcquire(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		w.allowLeftovers = true
		w.create("/limits")
		w.create(countPath)
		w.set(countPath, "12345")
		w.acquire(w.semaphoreWithCount(w.connect(), 2), 1).requireFails(recipes.ErrFormat)
		_, err := w.semaphoreWithCount(w.operator, 2).TryAcquire(w.Context(), 1)
		require.ErrorIs(w, err, recipes.ErrFormat)
	})
}

// TestSharedCount_ContenderReactsToOverlappingChanges checks that a contender that reacts to a change of the
// limit neither hangs nor leaves a znode if the limit changes again, or its context is cancelled, in this time.
func TestSharedCount_ContenderReactsToOverlappingChanges(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		w.allowLeftovers = true
		a, b := w.acquire(w.semaphoreWithCount(w.connect(), 1), 1), w.acquire(w.semaphoreWithCount(w.connect(), 1), 1)
		a.requireHolds()
		b.requireWaits()
		twice := w.srv.Before(zktest.Match{Op: zktest.OpDelete, Session: b.session(), Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			w.setCountNow(3)
			return zktest.Pass(q)
		})
		w.setCount(2)
		w.requireCalled(twice)
		b.requireHolds()
		b.release()
		c := w.acquire(w.semaphoreWithCount(w.connect(), 1), 3)
		c.requireWaits()
		gone := w.srv.Before(zktest.Match{Op: zktest.OpDelete, Session: c.session(), Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			c.cancel()
			return zktest.Pass(q)
		})
		w.setCount(4)
		w.requireCalled(gone)
		w.passTime(0)
		c.requireFails(context.Canceled)
		w.requireContenders(a.requireHolds().Path())
	})
}

// setCountNow sets the count in a hook, where setCount cannot be called.
func (w *harness) setCountNow(n byte) { w.set(countPath, string([]byte{0, 0, 0, n})) }

// TestSharedCount_RejectsInapplicableOptions checks that NewSemaphore rejects options that do not apply to the
// semaphore, and that NewMutex and NewRWMutex reject the options of semaphores.
func TestSharedCount_RejectsInapplicableOptions(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		for _, options := range [][]Option{
			{WithSharedCount(countPath)},
			{WithSharedCount(countPath), recipes.WithKazooLayout()},
			{WithSharedCount("x"), WithCuratorLayout()},
			{WithSharedCount(node), WithCuratorLayout()},
			{WithLockDelay(1)},
			{WithNamePrefix("x-")},
			{WithName(strings.Repeat("x", maxName+1))},
		} {
			_, err := NewSemaphore(w.operator, node, 1, options...)
			require.ErrorIs(w, err, recipes.ErrInvalid)
		}
		for _, o := range []Option{WithSharedCount(countPath), WithCuratorLayout()} {
			_, err := NewMutex(w.operator, node, o)
			require.ErrorIs(w, err, recipes.ErrInvalid)
			_, err = NewRWMutex(w.operator, node, o)
			require.ErrorIs(w, err, recipes.ErrInvalid)
		}
	})
}

// TestSemaphoreLimit_WarnsIfStoredLimitDiffers checks that a program whose limit differs from the stored limit
// logs one warning for each stored limit, with each protocol that stores limits.
func TestSemaphoreLimit_WarnsIfStoredLimitDiffers(t *testing.T) {
	for kind, options := range map[string][]Option{
		"": nil, "SharedCount": {WithCuratorLayout(), WithSharedCount(countPath)}, "kazoo": {recipes.WithKazooLayout()},
	} {
		t.Run(kind, func(t *testing.T) {
			runTest(t, 1, func(w *harness) {
				w.allowLeftovers = true
				var log testenv.Buffer
				logged := append([]Option{recipes.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))}, options...)
				first := w.semaphore(w.connect(), 2, logged...)
				w.acquire(first, 1).release()
				if kind != "kazoo" {
					require.NoError(w, first.SetLimit(w.Context(), 3))
					w.acquire(first, 1).release()
				}
				require.Empty(w, log.String(), "the program has stored the limit itself")
				second := w.semaphore(w.connect(), 5, logged...)
				for range 3 {
					w.acquire(second, 1).release()
				}
				require.Equal(w, 1, strings.Count(log.String(), "the stored limit applies"), log.String())
				require.Contains(w, log.String(), "given=5")
			})
		})
	}
}
