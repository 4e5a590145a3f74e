package connection_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/zkdial"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestExplain_NamesServerAndReasonOfOutage checks that Explain adds the server, and the reason why the connection
// has no session, to the error of an operation that no server has answered, and that Explain does not change other
// errors.
func TestExplain_NamesServerAndReasonOfOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn, _, err := zkdial.Connect([]string{"zk.example:2181"}, 4*time.Second, zkdial.WithDialer(srv.Dialer()))
		require.NoError(t, err)
		defer conn.Close()
		_, err = zkdial.Wait(t.Context(), conn)
		require.NoError(t, err)
		explain := func(err error) error { return connection.Explain(conn, err) }

		require.EqualError(t, explain(connection.ErrUnreachable), "the server does not answer (zk.example:2181)")
		require.Equal(t, context.DeadlineExceeded, explain(context.DeadlineExceeded), "the operation may have waited for another client")
		srv.Stop()
		time.Sleep(5 * time.Second)
		for _, err := range []error{connection.ErrUnreachable, context.DeadlineExceeded, errors.New("cause")} {
			require.ErrorIs(t, explain(err), err)
			require.ErrorContains(t, explain(err), err.Error()+" (zk.example:2181: dial zktest")
		}
		for _, err := range []error{nil, zk.ErrNoAuth, connection.ErrConnClosed, connection.ErrInvalid} {
			require.Equal(t, err, explain(err))
		}

		connection.RecordOf(conn).Push(connection.Event{Kind: connection.Closed, Err: connection.ErrHangs})
		closed := explain(connection.ErrConnClosed)
		require.EqualError(t, closed, connection.ErrConnClosed.Error()+": "+connection.ErrHangs.Error())
		require.Equal(t, closed, explain(closed))

		other, _, err := zk.Connect([]string{"127.0.0.1:2181"}, 4*time.Second, zk.WithDialer(srv.Dialer()), zk.WithLogInfo(false))
		require.NoError(t, err)
		defer other.Close()
		require.EqualError(t, connection.Explain(other, context.DeadlineExceeded), "context deadline exceeded (the connection has no session)")
	})
}
