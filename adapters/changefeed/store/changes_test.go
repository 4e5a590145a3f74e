package store_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/store"
)

// TestChanges fails if changes are not delivered in order, the error of the watch is not returned
// after them, or Close does not end Next.
func TestChanges(t *testing.T) {
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
		require.ErrorIs(t, err, changefeed.ErrClosed, "although a change was not read")
	})
}

// TestChanges_Missed fails if changes are dropped without an error.
func TestChanges_Missed(t *testing.T) {
	table := memory.NewTable()
	e, err := changefeed.NewElection(table.Store("election"))
	require.NoError(t, err)
	changes, err := e.Changes(t.Context(), "")
	require.NoError(t, err)
	defer changes.Close()
	for i := range 2000 {
		table.Put("key", i)
	}
	for i := range 1000 {
		c, err := changes.Next(t.Context())
		require.NoError(t, err)
		require.Equal(t, memory.Change{Key: "key", Value: i}, c)
	}
	_, err = changes.Next(t.Context())
	require.ErrorIs(t, err, changefeed.ErrMissed)
}
