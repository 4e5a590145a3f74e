package request

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

	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

func TestTransient(t *testing.T) {
	for _, err := range []error{
		zk.ErrConnectionClosed, zk.ErrNoServer, zk.ErrSessionMoved, zk.ErrSessionExpired, zk.ErrClosing,
		&net.OpError{Op: "write", Err: errors.New("broken pipe")}, fmt.Errorf("unknown error: %v", -127),
		fmt.Errorf("wrapped: %w", zk.ErrNoServer), io.ErrClosedPipe, io.EOF, net.ErrClosed,
	} {
		require.True(t, Transient(err), "%v", err)
	}
	for _, err := range []error{nil, zk.ErrNoNode, zk.ErrNoAuth, zkerror.ErrConnClosed, context.Canceled, fmt.Errorf("unknown error: %v", -6)} {
		require.False(t, Transient(err), "%v", err)
	}
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
