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

// retryUnanswered calls f until it receives an answer, or the server reports a missing permission.
// Servers of a cluster without a leader do not answer requests.
func (s *Store) retryUnanswered(ctx context.Context, f func(context.Context) error) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		err := f(attempt)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil || s.permissionError() != nil {
			return err
		}
	}
}

// permissionError returns the last error about permissions that the server has reported, if it
// concerns this store.
func (s *Store) permissionError() error {
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

// wrapError adds the operation to err, and wraps it with the error of stores that it means. It must
// not be used for a write whose outcome is unknown.
func (s *Store) wrapError(ctx context.Context, operation string, err error) error {
	denied := s.permissionError()
	switch {
	case err == nil, errors.Is(err, changefeed.ErrUnsuitable):
		return err
	case s.feeds.Closed():
		return changefeed.ErrClosed
	case errors.Is(err, nats.ErrConnectionClosed):
		return fmt.Errorf("changefeed/nats: %s %s: %w: %w: create a new connection and a new store (%w)",
			operation, s.path(), changefeed.ErrUnsuitable, leaderelection.ErrConnClosed, err)
	case errors.Is(err, context.DeadlineExceeded) && denied != nil && !s.permitted.Load():
		return fmt.Errorf("changefeed/nats: %s %s: %w: %w: the documentation of the package lists the required permissions (%w)",
			operation, s.path(), changefeed.ErrUnsuitable, leaderelection.ErrPermission, denied)
	}
	return s.wrapOutcome(ctx, operation, err)
}

// wrapOutcome adds the operation to err. The result does not imply that nothing was written.
func (s *Store) wrapOutcome(ctx context.Context, operation string, err error) error {
	if s.feeds.Closed() {
		return changefeed.ErrClosed
	}
	if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	return fmt.Errorf("changefeed/nats: %s %s: %w", operation, s.path(), err)
}
