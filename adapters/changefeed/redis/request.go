package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// call sends a request by f, and returns when ctx is done or the store is closed, although the
// driver does not observe the context by default.
func call[T any](ctx context.Context, s *Store, operation string, f func(ctx context.Context) (T, error)) (T, error) {
	value, err := changefeed.Call(ctx, s.feeds, f)
	return value, s.wrapError(ctx, operation, err)
}

// wrapError adds the operation to err, and wraps it with the error of stores that it means. ctx
// is that of the caller.
func (s *Store) wrapError(ctx context.Context, operation string, err error) error {
	switch {
	case err == nil, errors.Is(err, changefeed.ErrNoRecord), errors.Is(err, changefeed.ErrConflict),
		errors.Is(err, changefeed.ErrUnsuitable):
		return err
	case s.feeds.Closed():
		return changefeed.ErrClosed
	}
	if done := ctx.Err(); done != nil && !errors.Is(err, done) {
		err = fmt.Errorf("%w: %w", done, err)
	}
	err = fmt.Errorf("redis: %s key %q: %w", operation, s.key, err)
	advice := ""
	switch {
	case errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("%w: %w: %w: the client was closed", changefeed.ErrUnsuitable, leaderelection.ErrConnClosed, err)
	case replyContains(err, "WRONGTYPE"):
		advice = "the key has other data; use another key"
	case replyContains(err, "NOPERM", "NOAUTH", "WRONGPASS", "ACL failure"):
		advice = "the user lacks permissions, which the package documentation lists"
	default:
		return err
	}
	return fmt.Errorf("%w: %w: %s", changefeed.ErrUnsuitable, err, advice)
}

// replyContains reports whether err is an error reply of the server that contains one of the codes.
// Older servers put text before the code if a script fails.
func replyContains(err error, codes ...string) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	for _, code := range codes {
		if strings.Contains(reply.Error(), code) {
			return true
		}
	}
	return false
}
