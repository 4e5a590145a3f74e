package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

var errDriver = errors.New("the driver failed")

func newRunner(t *testing.T, ignoresContext bool) *Runner {
	r := &Runner{Prefix: "db: ", Suffix: " place", IgnoresContext: ignoresContext, MeaningOf: func(err error) error {
		if errors.Is(err, errDriver) {
			return changefeed.ErrUnsuitable
		}
		return nil
	}}
	r.Feeds = NewFeeds(nil, nil, 0)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// TestRunner_ErrorsNameOperationAndMeaning checks that a Runner adds the operation, and the error that MeaningOf returns,
// to an error of the driver, and returns no record.
func TestRunner_ErrorsNameOperationAndMeaning(t *testing.T) {
	r := newRunner(t, false)
	got, err := r.Read(t.Context(), "read", func(context.Context) (changefeed.Record, error) {
		return changefeed.Record{Epoch: "e"}, errDriver
	})
	require.ErrorIs(t, err, errDriver)
	require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	require.ErrorContains(t, err, "db: read place: ")
	require.Zero(t, got)
}

// TestRunner_ErrorOmitsFailureBeforeSuccess checks that the error of an operation that was not answered does not contain
// the error of an earlier operation if another operation has succeeded in between.
func TestRunner_ErrorOmitsFailureBeforeSuccess(t *testing.T) {
	for _, ignoresContext := range []bool{false, true} {
		r := newRunner(t, ignoresContext)
		record := changefeed.Record{Version: "v"}
		succeed := func(context.Context) (changefeed.Record, error) { return record, nil }
		for name, operate := range map[string]func() error{
			"Do": func() error { return r.Do(t.Context(), "check", func(context.Context) error { return nil }) },
			"Create": func() error {
				return r.Create(t.Context(), "create", record, func(context.Context, changefeed.Record) error { return nil })
			},
			"Read": func() error { _, err := r.Read(t.Context(), "read", succeed); return err },
			"Heartbeat": func() error {
				_, err := r.Heartbeat(t.Context(), "write", record, record, func(context.Context, changefeed.Record, changefeed.Record) (changefeed.Record, error) {
					return record, nil
				})
				return err
			},
			"Run": func() error { _, err := Run(t.Context(), r.Feeds, succeed); return err },
		} {
			timeout := func() string { return r.WrapError(t.Context(), "write", context.DeadlineExceeded).Error() }
			require.Error(t, r.WrapError(t.Context(), "read", errDriver))
			require.Contains(t, timeout(), errDriver.Error())
			require.NoError(t, operate(), name)
			require.NotContains(t, timeout(), errDriver.Error(), name)
		}
	}
}

// TestRunner_WritesHaveNewVersions checks that a Runner gives each write another version, and does not write a
// record that columns would change.
func TestRunner_WritesHaveNewVersions(t *testing.T) {
	r := newRunner(t, false)
	prev, next := changefeed.Record{Version: "v"}, changefeed.Record{Epoch: "e", Version: "v"}
	var created changefeed.Record
	require.NoError(t, r.Create(t.Context(), "create", next, func(_ context.Context, blank changefeed.Record) error {
		created = blank
		return nil
	}))
	written, err := r.Heartbeat(t.Context(), "write", prev, next, func(_ context.Context, p, n changefeed.Record) (changefeed.Record, error) {
		require.Equal(t, prev, p)
		return n, nil
	})
	require.NoError(t, err)
	require.Equal(t, "e", written.Epoch)
	require.NotEqual(t, "v", written.Version)
	require.NotEqual(t, created.Version, written.Version)

	next.Leader = "\xff"
	require.ErrorIs(t, r.Create(t.Context(), "create", next, nil), changefeed.ErrUnsuitable)
	_, err = r.Heartbeat(t.Context(), "write", prev, next, nil)
	require.ErrorIs(t, err, changefeed.ErrUnsuitable)
}

// TestRunner_EndsWithContextAndStore checks that an operation ends when its context is done or the store is
// closed, and that no operation runs after the store is closed.
func TestRunner_EndsWithContextAndStore(t *testing.T) {
	for _, ignoresContext := range []bool{false, true} {
		r := newRunner(t, ignoresContext)
		unblock := make(chan struct{})
		defer close(unblock)
		block := func(ctx context.Context) error {
			if ignoresContext {
				<-unblock
			}
			<-ctx.Done()
			return ctx.Err()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.ErrorIs(t, r.Do(ctx, "wait", block), context.DeadlineExceeded)
		results := make(chan error)
		go func() { results <- r.Do(t.Context(), "wait", block) }()
		require.NoError(t, r.Close())
		require.ErrorIs(t, <-results, changefeed.ErrClosed)
		require.ErrorIs(t, r.Do(t.Context(), "wait", nil), changefeed.ErrClosed)
	}
}
