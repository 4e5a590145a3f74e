package leaderelection

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a attempts
		calls, outcomes := 0, make(chan error)
		run := func() (bool, error) {
			return a.run(time.Second, func() error { calls++; return <-outcomes })
		}
		begun := time.Now()
		done, err := run()
		require.False(t, done)
		require.NoError(t, err)
		require.Equal(t, time.Second, time.Since(begun))

		failed := errors.New("failed")
		var waiting sync.WaitGroup
		for range 3 { // for the call that goes on
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
		for range 2 { // one that begins anew, and one that has what came of it
			done, err = run()
			require.True(t, done)
			require.NoError(t, err)
			require.Equal(t, 2, calls)
		}
	})
}
