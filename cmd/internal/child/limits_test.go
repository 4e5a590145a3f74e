package child

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// suspend returns t as a machine reads it that was suspended for d: the wall clock has advanced, and the monotonic
// clock has not. Package time cannot create a time with clock readings that differ.
func suspend(t time.Time, d time.Duration) time.Time {
	t = t.Add(d)
	(*struct {
		wall uint64
		ext  int64
	})(unsafe.Pointer(&t)).ext -= int64(d)
	return t
}

// TestUntilKill_LeavesTimeToReactToTERM checks that untilKill leaves the program time to react to TERM, but not more
// than the grace, or than the lost grace after the lease has expired.
func TestUntilKill_LeavesTimeToReactToTERM(t *testing.T) {
	const grace, lostGrace = 10 * time.Second, time.Second
	now := time.Now()
	for name, c := range map[string]struct {
		stopTime, leaseEnd, now time.Time
		want                    time.Duration
	}{
		"no lease":                       {now, time.Time{}, now.Add(time.Second), 9 * time.Second},
		"no lease, suspended after TERM": {now, time.Time{}, suspend(now, time.Hour), grace},
		"long lease":                     {now, now.Add(time.Minute), now, grace},
		"short lease":                    {now, now.Add(5 * time.Second), now, 6 * time.Second},
		"expired before TERM":            {now, now.Add(-5 * time.Second), now, lostGrace},
		"expired after TERM":             {now, now.Add(5 * time.Second), now.Add(5500 * time.Millisecond), 500 * time.Millisecond},
		"expired while suspended":        {suspend(now, time.Minute), now.Add(5 * time.Second), suspend(now, time.Minute), lostGrace},
		"suspended after TERM":           {now, now.Add(time.Minute), suspend(now, 2*time.Minute), lostGrace - time.Minute},
		"the wall clock was set back":    {suspend(now, -time.Hour), now.Add(5 * time.Second), suspend(now, -time.Hour), 6 * time.Second},
	} {
		require.Equal(t, c.want, limits{grace, lostGrace}.untilKill(c.stopTime, c.leaseEnd, c.now), name)
	}
}
