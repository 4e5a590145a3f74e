package lock

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestWaiter_ReportsPositionAndReturnsHold checks that Position returns the number of contenders ahead, and
// that Wait returns the hold.
func TestWaiter_ReportsPositionAndReturnsHold(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		first, second := w.lock(w.connect()), w.lock(w.connect())
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		third := w.mutex(w.connect()).Join(ctx)
		position := func() int {
			ahead, err := third.Position(w.Context())
			require.NoError(w, err)
			return ahead
		}
		require.Equal(w, 2, position())
		first.release()
		require.Equal(w, 1, position())
		second.release()
		w.passTime(0)
		require.Equal(w, 0, position())
		h, err := third.Wait()
		require.NoError(w, err)
		cancel()
		w.passTime(moment)
		require.NoError(w, h.Err(), "the context of Join does not affect the hold")
		require.Equal(w, 0, position())
		require.NoError(w, h.Release())
		_, err = third.Position(w.Context())
		require.ErrorIs(w, err, recipes.ErrReleased)
		_, err = third.Wait()
		require.Error(w, err)
	})
}

// TestWaiter_LeavesNoZnodeIfContextIsDone checks that a contender whose context is done leaves no znode, and
// that Wait returns the cause.
func TestWaiter_LeavesNoZnodeIfContextIsDone(t *testing.T) {
	t.Run("while the contender waits", func(t *testing.T) {
		runTest(t, 1, func(w *harness) {
			first := w.lock(w.connect())
			ctx, cancel := context.WithCancelCause(w.Context())
			second := w.mutex(w.connect()).Join(ctx)
			w.passTime(0)
			require.Len(w, w.contenders(), 2)
			cancel(errEnough)
			_, err := second.Wait()
			require.ErrorIs(w, err, errEnough)
			w.passTime(0)
			w.requireContenders(first.requireHolds().Path())
			_, err = second.Position(w.Context())
			require.ErrorIs(w, err, errEnough)
		})
	})
	t.Run("after the grant, before Wait", func(t *testing.T) {
		runTest(t, 1, func(w *harness) {
			conn := w.connect()
			for range 20 { // whether Wait first sees the grant or the cancellation is random
				ctx, cancel := context.WithCancelCause(w.Context())
				waiter := w.mutex(conn).Join(ctx)
				w.passTime(0)
				cancel(errEnough)
				w.passTime(0)
				_, err := waiter.Wait()
				require.ErrorIs(w, err, errEnough)
				w.requireContenders()
			}
		})
	})
	t.Run("before Join", func(t *testing.T) {
		runTest(t, 1, func(w *harness) {
			ctx, cancel := context.WithCancelCause(w.Context())
			cancel(errEnough)
			waiter := w.mutex(w.connect()).Join(ctx)
			_, err := waiter.Wait()
			require.ErrorIs(w, err, errEnough)
			_, err = waiter.Position(w.Context())
			require.ErrorIs(w, err, errEnough)
			require.Empty(w, bubble.Created(w.srv, node))
		})
	})
}

// TestWaiter_ReturnsErrDeletedIfZnodeIsDeleted checks that Wait and Position return ErrDeleted long before the
// holder leaves if another client deletes the contender's znode, even if the contender does not watch its
// znode.
func TestWaiter_ReturnsErrDeletedIfZnodeIsDeleted(t *testing.T) {
	for _, ahead := range []int{1, 2, 20} {
		runTest(t, 1, func(w *harness) {
			conn := w.connect()
			w.lock(conn).release()
			for range ahead {
				w.lock(w.connect())
			}
			w.passTime(timeout)
			// The lock's znode has no data, so the reply to the create contains the token, and the contender
			// does not have to read its znode.
			waiter := w.mutex(conn).Join(w.Context())
			w.passTime(0)
			own := w.contenders()[ahead]
			watched := slices.ContainsFunc(w.srv.Watches(), func(v zktest.Watch) bool { return v.Path == own })
			require.Equal(w, ahead == 1, watched)
			w.remove(own)
			w.allowLeftovers = true // the contender's watch on its predecessor's znode remains
			began := time.Now()
			_, err := waiter.Position(context.Background())
			require.ErrorIs(w, err, recipes.ErrDeleted)
			require.LessOrEqual(w, time.Since(began), moment+time.Duration(ahead)*contender.PreparePerContender)
			_, err = waiter.Wait()
			require.ErrorIs(w, err, recipes.ErrDeleted)
		})
	}
}
