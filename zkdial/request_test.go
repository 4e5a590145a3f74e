package zkdial

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestRetry_RepeatsAfterBrokenConnection checks that Retry repeats a request after an error of a broken
// connection, and not after a permanent error, and that Retry returns if its context is done or the connection
// was closed.
func TestRetry_RepeatsAfterBrokenConnection(t *testing.T) {
	server := zktest.Start(t)
	conn := open(t, []string{server.Addr()}, 4*time.Second)

	attempts := 0
	value, err := Retry(t.Context(), conn, func() (int, error) {
		if attempts++; attempts == 1 {
			return 0, zk.ErrConnectionClosed
		}
		return attempts, nil
	})
	require.NoError(t, err)
	require.Equal(t, 2, value)

	_, err = Retry(t.Context(), conn, func() (int, error) { attempts++; return 0, zk.ErrNoNode })
	require.ErrorIs(t, err, zk.ErrNoNode)
	require.Equal(t, 3, attempts)

	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("cause")
	cancel(cause)
	block := make(chan struct{})
	defer close(block)
	_, err = Retry(ctx, conn, func() (int, error) { <-block; return 0, nil })
	require.ErrorIs(t, err, cause)

	conn.Close()
	_, err = Children(t.Context(), conn, "/")
	require.ErrorIs(t, err, leaderelection.ErrConnClosed)
}

// TestChildren_ReturnsNames checks that Children returns the names of the children, and zk.ErrNoNode if the
// znode does not exist.
func TestChildren_ReturnsNames(t *testing.T) {
	server := zktest.Start(t)
	conn := open(t, []string{server.Addr()}, 4*time.Second)
	names, err := Children(t.Context(), conn, "/")
	require.NoError(t, err)
	require.Contains(t, names, "zookeeper")
	_, err = Children(t.Context(), conn, "/missing")
	require.ErrorIs(t, err, zk.ErrNoNode)
}

// TestFailure_ReturnsReasonOfFailedAttempt checks that Failure returns the reason of a failed attempt to
// connect, and nil as soon as there is a session.
func TestFailure_ReturnsReasonOfFailedAttempt(t *testing.T) {
	server := zktest.Start(t)
	server.Stop()
	conn := open(t, []string{server.Addr()}, 4*time.Second)
	require.Eventually(t, func() bool { return Failure(conn) != nil }, time.Minute, time.Millisecond)
	require.ErrorContains(t, Failure(conn), server.Addr())
	server.Restart(zktest.KeepTree)
	requireEstablished(t, conn)
	require.Eventually(t, func() bool { return Failure(conn) == nil }, time.Minute, time.Millisecond)
}
