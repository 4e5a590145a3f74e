package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestFeeds_CloseReturnsDespiteStuckWatch checks that a watch that does not observe its context does not block Next,
// and blocks Close no longer than the limit.
func TestFeeds_CloseReturnsDespiteStuckWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		feeds := store.NewFeeds(nil, func(context.Context, func(changefeed.Event)) error {
			<-release
			return nil
		}, 0)
		feed, err := feeds.Subscribe(t.Context())
		require.NoError(t, err)
		begin := time.Now()
		require.NoError(t, feed.Close())
		_, err = feed.Next(t.Context())
		require.ErrorIs(t, err, changefeed.ErrClosed)
		require.NoError(t, feeds.Close())
		require.LessOrEqual(t, time.Since(begin), 4*time.Second)
		close(release)
	})
}

// TestCall_ReturnsWhenContextIsDone checks that Call returns the result of its function, and does not wait
// for a driver that does not observe its context.
func TestCall_ReturnsWhenContextIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		feeds := store.NewFeeds(nil, nil, 0)
		value, err := store.Call(t.Context(), feeds, func(context.Context) (int, error) { return 1, nil })
		require.NoError(t, err)
		require.Equal(t, 1, value)

		release := make(chan struct{})
		defer close(release)
		stuck := func(context.Context) (int, error) { <-release; return 1, nil }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = store.Call(ctx, feeds, stuck)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.AfterFunc(time.Second, func() { _ = feeds.Close() })
		_, err = store.Call(t.Context(), feeds, stuck)
		require.ErrorIs(t, err, changefeed.ErrClosed)
		_, err = store.Call(t.Context(), feeds, stuck)
		require.ErrorIs(t, err, changefeed.ErrClosed)
	})
}

// TestFeeds_WrapErrorKeepsOperationAndCauses checks that the error that WrapError returns contains the
// operation, and wraps all errors that it must wrap.
func TestFeeds_WrapErrorKeepsOperationAndCauses(t *testing.T) { synctest.Test(t, testWrapError) }

func testWrapError(t *testing.T) {
	feeds := store.NewFeeds(nil, nil, 0)
	driver, done := errors.New("driver"), t.Context()
	unsuitable := func(error) error { return fmt.Errorf("%w: advice", changefeed.ErrUnsuitable) }
	unknown := func(error) error { return nil }
	require.NoError(t, feeds.WrapError(done, "read", nil, unsuitable))
	require.EqualError(t, feeds.WrapError(done, "read", driver, unknown), "read: driver")
	err := feeds.WrapError(done, "read", driver, unsuitable)
	require.EqualError(t, err, "read: "+changefeed.ErrUnsuitable.Error()+": advice (driver)")
	require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	require.ErrorIs(t, err, driver)
	require.Equal(t, err, feeds.WrapError(done, "another operation", err, unknown))

	timeout := func() string {
		return feeds.WrapError(t.Context(), "write", context.DeadlineExceeded, unknown).Error()
	}
	require.Equal(t, "write: context deadline exceeded (the last error was: driver)", timeout())
	time.Sleep(time.Minute)
	require.Equal(t, "write: context deadline exceeded", timeout(), "the error is old")
	require.Error(t, feeds.WrapError(done, "read", driver, unknown))
	require.NoError(t, feeds.WrapError(done, "read", nil, unknown))
	require.Equal(t, "write: context deadline exceeded", timeout(), "an operation has succeeded since then")

	done, cancel := context.WithCancel(done)
	cancel()
	for _, meaning := range []func(error) error{unknown, unsuitable} {
		err = feeds.WrapError(done, "read", driver, meaning)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, driver)
	}
	require.NoError(t, feeds.Close())
	require.Equal(t, changefeed.ErrClosed, feeds.WrapError(done, "read", err, unsuitable))
}
