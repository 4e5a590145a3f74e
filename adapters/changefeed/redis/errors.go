package redis

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// meaningOf returns the error of package changefeed that corresponds to an error of the driver, or
// nil if there is none.
func meaningOf(err error) error {
	switch {
	case errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("%w: %w: the client was closed", changefeed.ErrUnsuitable, leaderelection.ErrConnClosed)
	case replyContains(err, "WRONGTYPE"):
		return fmt.Errorf("%w: the key has other data; use another key", changefeed.ErrUnsuitable)
	case replyContains(err, "NOPERM", "NOAUTH", "WRONGPASS", "ACL failure", "The user executing the script"):
		return fmt.Errorf("%w: the user lacks permissions, which the package documentation lists", changefeed.ErrUnsuitable)
	}
	return nil
}

// replyContains reports whether err is an error reply of the server that contains one of the codes, at any position:
// older servers put text before the code if a script fails.
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
