package limit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// While a machine is suspended the monotonic clock stops, and the wall clock continues.
func TestElapsed_ByEitherClock(t *testing.T) {
	begin := time.Now()
	// A time without a monotonic reading is compared by the wall clock alone.
	suspended := begin.Add(time.Second).Round(0).Add(time.Hour)
	require.Equal(t, time.Hour+time.Second, Elapsed(begin, suspended))
	require.True(t, Expired(begin.Add(time.Minute), suspended))
	require.False(t, Expired(begin.Add(2*time.Hour), suspended))
	require.Equal(t, time.Second, Elapsed(begin, begin.Add(time.Second)))
	require.Equal(t, time.Hour-time.Second, Left(begin.Add(2*time.Hour), suspended))
}
