package connection

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestTransient(t *testing.T) {
	for _, err := range []error{
		zk.ErrConnectionClosed, zk.ErrNoServer, zk.ErrSessionMoved, zk.ErrSessionExpired, zk.ErrClosing,
		&net.OpError{Op: "write", Err: errors.New("broken pipe")}, fmt.Errorf("unknown error: %v", -127),
		fmt.Errorf("wrapped: %w", zk.ErrNoServer), io.ErrClosedPipe, io.EOF, net.ErrClosed,
	} {
		require.True(t, Transient(err), "%v", err)
	}
	for _, err := range []error{nil, zk.ErrNoNode, zk.ErrNoAuth, ErrConnClosed, context.Canceled, fmt.Errorf("unknown error: %v", -6)} {
		require.False(t, Transient(err), "%v", err)
	}
}

// A server that requires authentication answers only the first request of a connection. Fails if Read
// does not return that answer, which the request that finds out whether the connection is closed
// receives, or if the answer does not name the server and what to do.
func TestRead_AuthenticationIsRequired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn := bubble.Connect(t, srv, 4*time.Second)
		srv.Before(zktest.Match{Op: zktest.OpExists, Path: "/a", Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			bubble.RequireAuthentication(srv)
			return zktest.Cut(q)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := Read(ctx, conn, func() (bool, error) {
			exists, _, err := conn.Exists("/a")
			return exists, err
		})
		require.ErrorIs(t, err, ErrPermission)
		require.ErrorContains(t, err, "SESSIONCLOSEDREQUIRESASLAUTH -124 from "+conn.Server())
		require.ErrorContains(t, err, "AddAuth")
	})
}

// The ACL of the root does not concern the request that failed with the connection.
func TestRead_RootIsNotReadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn := bubble.Connect(t, srv, 4*time.Second)
		srv.Before(zktest.Match{Op: zktest.OpExists, Path: "/"}, zktest.Fail(zk.ErrNoAuth))
		srv.Before(zktest.Match{Op: zktest.OpExists, Path: "/a", Nth: 1}, zktest.Cut)
		require.NoError(t, Retry(t.Context(), conn, func() error {
			_, _, err := conn.Exists("/a")
			return err
		}))
	})
}

func TestDo_ContextIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(context.Background())
		hung := make(chan struct{})
		reason := errors.New("enough")
		go func() {
			synctest.Wait()
			cancel(reason)
		}()
		_, err := Do(ctx, func() (int, error) { <-hung; return 1, nil })
		require.ErrorIs(t, err, reason)
		_, err = Do(ctx, func() (int, error) { panic("called although the context is done") })
		require.ErrorIs(t, err, reason)
		close(hung)
	})
}

func TestRead_ReturnsResultsAndFinalErrors(t *testing.T) {
	n, err := Read(t.Context(), nil, func() (int, error) { return 7, zk.ErrNoNode })
	require.Equal(t, 7, n)
	require.ErrorIs(t, err, zk.ErrNoNode)
}

func TestRead_RetriesTransientFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		n, err := Read(t.Context(), nil, func() (int, error) {
			if tries++; tries < 20 {
				return 0, zk.ErrNoServer
			}
			return tries, nil
		})
		require.NoError(t, err)
		require.Equal(t, 20, n)

		ctx, cancel := context.WithCancel(t.Context())
		_, err = Read(ctx, nil, func() (int, error) { cancel(); return 0, zk.ErrNoServer })
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestBackoff_GrowsAndIsReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Backoff
		for _, want := range []time.Duration{5, 10, 20, 40, 80, 160, 250, 250} {
			pause := b.Next()
			require.Equal(t, want*time.Millisecond, pause)
			time.Sleep(pause)
		}
		time.Sleep(time.Second)
		require.Equal(t, 5*time.Millisecond, b.Next())
	})
}
