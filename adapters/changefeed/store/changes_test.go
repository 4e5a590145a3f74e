package store_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/store"
)

// TestChanges_DeliveredInOrder checks that changes are delivered in order and followed by the error of the
// watch, and that Close ends Next.
func TestChanges_DeliveredInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		feeds := store.NewFeeds(nil, nil, 0)
		defer feeds.Close()
		failed := errors.New("failed")
		_, err := feeds.Changes(t.Context(), func(context.Context, func(any)) error { return failed })
		require.ErrorIs(t, err, failed)
		c, err := feeds.Changes(t.Context(), func(_ context.Context, report func(any)) error {
			for _, change := range []any{nil, 1, 2} {
				report(change)
			}
			return failed
		})
		require.NoError(t, err)
		for i := range 2 {
			change, err := c.Next(t.Context())
			require.NoError(t, err)
			require.Equal(t, i+1, change)
		}
		_, err = c.Next(t.Context())
		require.ErrorIs(t, err, failed)
		require.NoError(t, c.Close())
		_, err = c.Next(t.Context())
		require.ErrorIs(t, err, changefeed.ErrClosed)

		c, err = feeds.Changes(t.Context(), func(ctx context.Context, report func(any)) error {
			for _, change := range []any{nil, 1, 2} {
				report(change)
			}
			<-ctx.Done()
			return ctx.Err()
		})
		require.NoError(t, err)
		done, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = c.Next(done)
		require.ErrorIs(t, err, context.Canceled)
		change, err := c.Next(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, change)
		require.NoError(t, c.Close())
		_, err = c.Next(t.Context())
		require.ErrorIs(t, err, changefeed.ErrClosed, "Next after Close, with an unread change")
	})
}

// TestChanges_DroppedChangesAreReported checks that a reader that is more than 1000 changes behind
// receives the first 1000 and then ErrMissed.
func TestChanges_DroppedChangesAreReported(t *testing.T) {
	table := memory.NewTable()
	e, err := changefeed.NewElection(table.Store("election"))
	require.NoError(t, err)
	changes, err := e.Changes(t.Context(), "")
	require.NoError(t, err)
	for i := range 2000 {
		table.Put("key", i)
	}
	i := 0
	for c, err := range changes {
		if i == 1000 {
			require.ErrorIs(t, err, changefeed.ErrMissed)
			return
		}
		require.NoError(t, err)
		require.Equal(t, memory.Change{Key: "key", Value: i}, c)
		i++
	}
	require.Fail(t, "the loop ended without an error")
}

// TestChanges_LoopEndsWithContext checks that a loop over changes ends when its context is done, and that the feed is
// closed with the loop.
func TestChanges_LoopEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := memory.NewTable()
		e, err := changefeed.NewElection(table.Store("election"))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		changes, err := e.Changes(ctx, "")
		require.NoError(t, err)
		table.Put("key", 1)
		elements := 0
		for change, err := range changes {
			require.NoError(t, err)
			require.Equal(t, memory.Change{Key: "key", Value: 1}, change)
			elements++
		}
		require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
		require.Equal(t, 1, elements)
		for _, err := range changes {
			require.Fail(t, "a loop whose context is done has an element", "%v", err)
		}
	})
}
