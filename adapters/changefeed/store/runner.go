package store

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// Runner runs the operations of one store, which are its requests, and its feeds. Its methods may be called from any
// goroutine.
type Runner struct {
	*Feeds
	// Prefix and Suffix precede and follow the name of the operation in error messages.
	Prefix, Suffix string
	// MeaningOf returns the error of package changefeed that corresponds to an error of the
	// driver, or nil. The function itself must not be nil.
	MeaningOf func(error) error
	// IgnoresContext reports that the driver does not observe the contexts of requests. An
	// operation then continues on a separate goroutine when its method returns.
	IgnoresContext bool
}

// WrapError adds the operation to err, and wraps it with the corresponding error of package changefeed.
// ctx is the context of the caller.
func (r *Runner) WrapError(ctx context.Context, operation string, err error) error {
	return r.Feeds.WrapError(ctx, r.Prefix+operation+r.Suffix, err, r.MeaningOf)
}

// Unsuitable returns an error that wraps [changefeed.ErrUnsuitable], with a message that names the
// store.
func (r *Runner) Unsuitable(format string, args ...any) error {
	return fmt.Errorf("%w: %s%w", changefeed.ErrUnsuitable, r.Prefix, fmt.Errorf(format, args...))
}

// Do runs an operation that returns only an error.
func (r *Runner) Do(ctx context.Context, operation string, f func(ctx context.Context) error) error {
	_, err := r.Read(ctx, operation, func(ctx context.Context) (changefeed.Record, error) {
		return changefeed.Record{}, f(ctx)
	})
	return err
}

// Read runs an operation that returns the record: a read, or a write of a record that was encoded with
// [Encode]. For records in columns, use Create and Heartbeat.
func (r *Runner) Read(ctx context.Context, operation string, f func(ctx context.Context) (changefeed.Record, error)) (changefeed.Record, error) {
	run := Run[changefeed.Record]
	if r.IgnoresContext {
		run = Call[changefeed.Record]
	}
	record, err := run(ctx, r.Feeds, f)
	if err = r.WrapError(ctx, operation, err); err != nil {
		return changefeed.Record{}, err
	}
	return record, nil
}

// Create runs create, an operation that creates the record in columns of text and 64-bit integers. create receives the
// record with a random version. If such columns would change the record, the error wraps [changefeed.ErrUnsuitable].
func (r *Runner) Create(ctx context.Context, operation string, blank changefeed.Record, create func(ctx context.Context, blank changefeed.Record) error) error {
	return r.Do(ctx, operation, func(ctx context.Context) error {
		blank, err := withVersion(blank)
		if err != nil {
			return err
		}
		return create(ctx, blank)
	})
}

// Heartbeat runs replace, an operation that replaces prev by next and returns the written record. It gives next a random
// version. If columns of text and 64-bit integers would change the record, the error wraps [changefeed.ErrUnsuitable].
func (r *Runner) Heartbeat(ctx context.Context, operation string, prev, next changefeed.Record, replace func(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error)) (changefeed.Record, error) {
	return r.Read(ctx, operation, func(ctx context.Context) (changefeed.Record, error) {
		next, err := withVersion(next)
		if err != nil {
			return changefeed.Record{}, err
		}
		return replace(ctx, prev, next)
	})
}

// withVersion returns next with a random version, or an error if columns would change it.
func withVersion(next changefeed.Record) (changefeed.Record, error) {
	next.Version = rand.Text()
	return next, CheckColumns(next)
}
