package leaderelection

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAttempts fails if two attempts run at the same time, or if an attempt is not repeated after a
// failure.
func TestAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a attempts
		calls, outcomes := 0, make(chan error)
		run := func() (bool, error) {
			return a.run(time.Second, func() error { calls++; return <-outcomes })
		}
		start := time.Now()
		done, err := run()
		require.False(t, done)
		require.NoError(t, err)
		require.Equal(t, time.Second, time.Since(start))

		failed := errors.New("failed")
		var waiting sync.WaitGroup
		for range 3 { // they wait for the first attempt
			waiting.Go(func() {
				done, err := run()
				require.True(t, done)
				require.Equal(t, failed, err)
			})
		}
		synctest.Wait()
		require.Equal(t, 1, calls)
		outcomes <- failed
		waiting.Wait()

		go func() { outcomes <- nil }()
		for range 2 { // a new attempt, and its result
			done, err = run()
			require.True(t, done)
			require.NoError(t, err)
			require.Equal(t, 2, calls)
		}
	})
}
