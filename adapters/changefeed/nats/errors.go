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

// retryUnanswered calls f until its request is answered, ctx is done, or the server reports a missing permission.
// It is needed because servers of a cluster without a leader do not answer requests.
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

// permissionError returns the last error about permissions that the server has reported for this
// connection, if it can concern a request of this store.
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

// withReport adds to err, the error of a request, what the server has reported since the request began. before is what
// LastError had returned then. A server does not answer a request for which a permission is missing, but reports that
// separately; it also reports rejected credentials whenever the connection tries to reconnect.
func (s *Store) withReport(before, err error) error {
	reported := s.conn.LastError()
	if err == nil || reported == nil || reported == before || strings.Contains(err.Error(), reported.Error()) ||
		errors.Is(reported, nats.ErrPermissionViolation) && s.permissionError() == nil {
		return err
	}
	return fmt.Errorf("%w (the server reports: %v)", err, reported)
}

// wrapError adds the operation to err, and wraps it with the corresponding error of package
// changefeed. It must not be used for a write whose outcome is unknown.
func (s *Store) wrapError(ctx context.Context, operation string, err error) error {
	return s.feeds.WrapError(ctx, s.errorPrefix(operation), s.explain(err), s.meaningOf)
}

// wrapOutcome adds the operation to err, the error of a write whose outcome is unknown. Unlike wrapError, it wraps no
// error of package changefeed that would mean that nothing was written.
func (s *Store) wrapOutcome(ctx context.Context, operation string, err error) error {
	return s.feeds.WrapError(ctx, s.errorPrefix(operation), s.explain(err), func(error) error { return nil })
}

// explain adds the state of the connection to err if err means that a request was not answered in time.
func (s *Store) explain(err error) error {
	if !errors.Is(err, context.DeadlineExceeded) || s.conn.IsConnected() || s.conn.IsClosed() {
		return err
	}
	err = fmt.Errorf("%w: %w", err, errDisconnected)
	if last := s.conn.LastError(); last != nil {
		err = fmt.Errorf("%w (%w)", err, last)
	}
	return err
}

// errorPrefix returns the beginning of the message of an error, which names the store, the operation and
// the server.
func (s *Store) errorPrefix(operation string) string {
	return fmt.Sprintf("changefeed/nats: %s %s at %s", operation, s.path(), strings.Join(s.conn.Servers(), ","))
}

// meaningOf returns the error of package changefeed that corresponds to an error of the driver, or
// nil if there is none.
func (s *Store) meaningOf(err error) error {
	denied := s.permissionError()
	switch {
	case errors.Is(err, nats.ErrConnectionClosed):
		return fmt.Errorf("%w: %w: create a new connection and a new store", changefeed.ErrUnsuitable, leaderelection.ErrConnClosed)
	case errors.Is(err, context.DeadlineExceeded) && denied != nil && !s.permitted.Load():
		return fmt.Errorf("%w: %w: the documentation of the package lists the required permissions (%w)",
			changefeed.ErrUnsuitable, leaderelection.ErrPermission, denied)
	}
	return nil
}
