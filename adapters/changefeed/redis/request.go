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

// ask sends a request by f, and returns when ctx is done or the store is closed, although the
// driver does not observe the context by default.
func ask[T any](ctx context.Context, s *Store, what string, f func(ctx context.Context) (T, error)) (T, error) {
	value, err := changefeed.Call(ctx, s.feeds, f)
	return value, s.explain(ctx, what, err)
}

// explain says what was tried when err happened, and wraps what there is to ask for. ctx
// is the caller's.
func (s *Store) explain(ctx context.Context, what string, err error) error {
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
	err = fmt.Errorf("redis: %s key %q: %w", what, s.key, err)
	help := ""
	switch {
	case errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("%w: %w: %w: the client was closed", changefeed.ErrUnsuitable, leaderelection.ErrConnClosed, err)
	case says(err, "WRONGTYPE"):
		help = "the key has other data; use another key"
	case says(err, "NOPERM", "NOAUTH", "WRONGPASS", "ACL failure"):
		help = "the user lacks permissions, which the package documentation lists"
	default:
		return err
	}
	return fmt.Errorf("%w: %w: %s", changefeed.ErrUnsuitable, err, help)
}

// says looks for words in what the server has answered. Errors inside a script are told
// with words of older servers' own before them.
func says(err error, words ...string) bool {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return false
	}
	for _, word := range words {
		if strings.Contains(answer.Error(), word) {
			return true
		}
	}
	return false
}
