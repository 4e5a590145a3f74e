package zkdial

import (
	"context"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// Failure returns why conn has no session: the error of the last attempt to connect, with the server.
// It wraps [ErrDataLost] if the last session was lost with the servers' data. It is nil if conn has a
// session, if no attempt has failed yet, and if conn was opened without this package.
func Failure(conn *zk.Conn) error {
	facts := connection.RecordOf(conn).Facts()
	switch {
	case !facts.Losing:
		return facts.Failure
	case facts.Failure == nil:
		return ErrDataLost
	}
	return fmt.Errorf("%w: %w", ErrDataLost, facts.Failure)
}

// Retry calls f, which sends one request over conn and must be safe to repeat, until it returns nil or
// an error that another attempt would return as well, and returns the last result. The errors of a broken
// connection, for example, are followed by another attempt. Retry observes ctx although the methods of
// conn do not: if ctx is done first, it returns the cause of ctx. f runs on a separate goroutine and can
// return later, so it must not change variables of the caller. If conn was closed, the error is
// leaderelection.ErrConnClosed.
func Retry[T any](ctx context.Context, conn *zk.Conn, f func() (T, error)) (T, error) {
	return connection.Read(ctx, conn, f)
}

// Children returns the names of the children of a znode, in any order, with the attempts of [Retry]. If
// the list is too large for a reply, the error wraps leaderelection.ErrTooLarge; conn.Children would lose
// the connection with each attempt.
func Children(ctx context.Context, conn *zk.Conn, path string) ([]string, error) {
	return connection.List(ctx, conn, path)
}

// CheckPath returns leaderelection.ErrInvalid if path cannot be the node of an election: for the
// root, and for a path that is too long or that ZooKeeper does not accept.
func CheckPath(path string) error { return connection.CheckPath(path) }
