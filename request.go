package leaderelection

import (
	"context"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// limiter returns a context that bounds the wait for the response to a request.
type limiter func() (context.Context, context.CancelFunc)

// limit is the limiter of functions that wait for at most a session timeout per request.
func (o *options) limit() (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(o.ctx, connection.SessionTimeout(o.conn, o.timeout), ErrUnreachable)
}

// read sends a request that can be retried, and retries it until the limit.
func read[T any](limit limiter, conn *zk.Conn, f func() (T, error)) (T, error) {
	ctx, cancel := limit()
	defer cancel()
	return connection.Read(ctx, conn, f)
}
