package recipes_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/barrier"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestWait_ReturnsIfContextCauseIsSessionLoss checks that a waiting call returns when its context ends with the
// cause ErrSessionExpired, because the context belongs to a hold that was lost with its session. A waiting call
// survives the expiry of its own session, so a call that confuses the two would retry without a pause. The test uses
// real time, because time does not pass in a bubble in which a goroutine never blocks.
func TestWait_ReturnsIfContextCauseIsSessionLoss(t *testing.T) {
	srv := zktest.Start(t)
	conn, _, err := srv.Connect(10 * time.Second)
	require.NoError(t, err)
	semaphore := func(opts ...lock.Option) func(context.Context) error {
		s, err := lock.NewSemaphore(conn, "/semaphore", 1, opts...)
		require.NoError(t, err)
		return func(ctx context.Context) error { _, err := s.Acquire(ctx, 1); return err }
	}
	mutex, err := lock.NewMutex(conn, "/mutex")
	require.NoError(t, err)
	single, err := lock.NewSingle(conn, "/single", nil)
	require.NoError(t, err)
	period, err := lock.NewPeriod(conn, "/period", time.Hour)
	require.NoError(t, err)
	double, err := barrier.NewDouble(conn, "/barrier", 2)
	require.NoError(t, err)
	for name, wait := range map[string]func(context.Context) error{
		"mutex":             func(ctx context.Context) error { _, err := mutex.Lock(ctx); return err },
		"single":            func(ctx context.Context) error { _, err := single.Lock(ctx); return err },
		"period":            func(ctx context.Context) error { _, err := period.Next(ctx); return err },
		"barrier":           func(ctx context.Context) error { _, err := double.Enter(ctx); return err },
		"semaphore":         semaphore(),
		"curator semaphore": semaphore(lock.WithCuratorLayout()),
		"kazoo semaphore":   semaphore(recipes.WithKazooLayout()),
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		if name == "barrier" { // the barrier must be set before a call waits at it
			time.AfterFunc(time.Second, func() { cancel(recipes.ErrSessionExpired) })
		} else {
			cancel(recipes.ErrSessionExpired)
		}
		result := make(chan error, 1)
		go func() { result <- wait(ctx) }()
		select {
		case err := <-result:
			require.ErrorIs(t, err, recipes.ErrSessionExpired, name)
		case <-time.After(30 * time.Second):
			require.Fail(t, "the waiting call does not return", name)
		}
	}
}
