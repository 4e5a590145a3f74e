package nats

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// patient calls f again and again until it has an answer, or the server has said meanwhile
// that something is not permitted. Servers of a cluster that have no leader yet leave
// requests unanswered.
func (s *Store) patient(ctx context.Context, f func(context.Context) error) error {
	for {
		try, cancel := context.WithTimeout(ctx, time.Second)
		err := f(try)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil || s.refused() != nil {
			return err
		}
	}
}

// refused is what the server has said last about permissions, if that concerns this store.
func (s *Store) refused() error {
	err := s.conn.LastError()
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return nil
	}
	for _, subject := range []string{"$KV." + s.bucket + ".", "KV_" + s.bucket, "_INBOX."} {
		if strings.Contains(err.Error(), strings.ToLower(subject)) || strings.Contains(err.Error(), subject) {
			return err
		}
	}
	return nil
}

// fail says what was tried on what, and gives err its place among the errors of stores. It
// is not for the outcome of a write.
func (s *Store) fail(ctx context.Context, doing string, err error) error {
	refused := s.refused()
	switch {
	case err == nil, errors.Is(err, changefeed.ErrUnsuitable):
		return err
	case s.feeds.Closed():
		return changefeed.ErrClosed
	case errors.Is(err, nats.ErrConnectionClosed):
		return fmt.Errorf("changefeed/nats: %s %s: %w: %w: create a new connection and a new store (%w)",
			doing, s.where(), changefeed.ErrUnsuitable, leaderelection.ErrConnClosed, err)
	case errors.Is(err, context.DeadlineExceeded) && refused != nil && !s.permitted.Load():
		return fmt.Errorf("changefeed/nats: %s %s: %w: %w: the documentation of the package lists the required permissions (%w)",
			doing, s.where(), changefeed.ErrUnsuitable, leaderelection.ErrPermission, refused)
	}
	return s.outcome(ctx, doing, err)
}

// outcome says no more than that it did not succeed.
func (s *Store) outcome(ctx context.Context, doing string, err error) error {
	if s.feeds.Closed() {
		return changefeed.ErrClosed
	}
	if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	return fmt.Errorf("changefeed/nats: %s %s: %w", doing, s.where(), err)
}
