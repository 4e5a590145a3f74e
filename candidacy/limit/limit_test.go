package limit

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAwait_ReportsDoneEvenAfterEnd checks that Await waits until the time end while done is open, and returns
// true if done is closed, even after that time.
func TestAwait_ReportsDoneEvenAfterEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		begin := time.Now()
		require.False(t, Await(done, begin.Add(Confirm)))
		require.Equal(t, Confirm, time.Since(begin))
		time.AfterFunc(Confirm/2, func() { close(done) })
		require.True(t, Await(done, time.Now().Add(Confirm)))
		for range 100 {
			require.True(t, Await(done, begin), "an answer that is there counts, whatever the time")
		}
	})
}

// TestElapsed_ReturnsLongerOfTwoClocks checks that Elapsed, Left and Expired include the time for which a
// machine was suspended. The monotonic clock stops in this time, and the wall clock continues.
func TestElapsed_ReturnsLongerOfTwoClocks(t *testing.T) {
	begin := time.Now()
	// A time without a monotonic reading is compared by the wall clock alone.
	suspended := begin.Add(time.Second).Round(0).Add(time.Hour)
	require.Equal(t, time.Hour+time.Second, Elapsed(begin, suspended))
	require.True(t, Expired(begin.Add(time.Minute), suspended))
	require.False(t, Expired(begin.Add(2*time.Hour), suspended))
	require.Equal(t, time.Second, Elapsed(begin, begin.Add(time.Second)))
	require.Equal(t, time.Hour-time.Second, Left(begin.Add(2*time.Hour), suspended))
}
