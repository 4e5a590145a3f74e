package txn

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestClock_EstimatesTimeOfLeader checks that the estimate of the leader's time uses the newest reply, but not a
// slow reply while a faster reply is recent enough.
func TestClock_EstimatesTimeOfLeader(t *testing.T) {
	begin := time.UnixMilli(1_000_000)
	at := func(d time.Duration) time.Time { return begin.Add(d) }
	const ms = time.Millisecond
	var c clock
	requireOffset := func(offset time.Duration, local time.Time) {
		t.Helper()
		leader, valid := c.estimate(local)
		require.True(t, valid)
		require.Equal(t, offset, leader.Sub(local))
	}
	_, valid := c.estimate(begin)
	require.False(t, valid)
	c.update(1_000_600, at(0), at(200*ms))
	requireOffset(500*ms, at(200*ms))
	requireOffset(500*ms, at(time.Minute))
	c.update(1_009_000, at(1000*ms), at(9000*ms)) // a measurement with a slow reply
	requireOffset(500*ms, at(9000*ms))
	c.update(1_010_410, at(10_000*ms), at(10_020*ms))
	requireOffset(400*ms, at(10_020*ms))
	c.update(1_800_000, at(700_000*ms), at(703_000*ms)) // a slow reply, but the last fast reply is too old
	requireOffset(98_500*ms, at(703_000*ms))
	_, valid = c.estimate(at(703_000*ms + maxAge))
	require.False(t, valid, "the leader's clock may have drifted, or another server may be the leader")
}

// TestClock_DropsEstimateIfLocalClocksDiverge checks that the clock returns no estimate after the local wall clock
// was set, or after the monotonic clock has not advanced while the machine was suspended. The test uses real time,
// because a time in a bubble of testing/synctest has no monotonic reading.
func TestClock_DropsEstimateIfLocalClocksDiverge(t *testing.T) {
	begin := time.Now()
	stamp := begin.UnixMilli()
	for name, local := range map[string]time.Time{
		"the wall clock was set forward": withWallClock(begin.Add(time.Minute), time.Hour),
		"the wall clock was set back":    withWallClock(begin.Add(time.Minute), -time.Hour),
		"the machine was suspended":      withWallClock(begin, time.Minute),
	} {
		var c clock
		c.update(stamp, begin, begin)
		_, valid := c.estimate(local)
		require.False(t, valid, name)
		c.update(stamp, begin, local)
		require.Equal(t, begin, c.received, "%s: during the request", name)
		c.update(stamp+7000, local, local.Add(2*maxRoundTrip)) // a slow reply, but there is no valid estimate
		leader, valid := c.estimate(local.Add(time.Minute))
		require.True(t, valid, name)
		require.Equal(t, stamp+7000+(time.Minute-maxRoundTrip).Milliseconds(), leader.UnixMilli(), name)
	}
	// An adjustment of the wall clock by less than the limit does not change the estimate.
	var c clock
	c.update(stamp, begin, begin)
	leader, valid := c.estimate(withWallClock(begin.Add(time.Minute), -maxDivergence/2))
	require.True(t, valid)
	require.Equal(t, stamp+time.Minute.Milliseconds(), leader.UnixMilli())
}

// withWallClock returns t with its wall clock reading changed by d. It uses unsafe, because package time cannot
// create a time whose clock readings differ.
func withWallClock(t time.Time, d time.Duration) time.Time {
	t = t.Add(d)
	fields := (*struct {
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&t))
	fields.ext -= int64(d) // change the monotonic reading instead, so that only the wall clock reading has advanced
	return t
}

// TestWriter_LeaderTimeReturnsNoStaleEstimate checks that LeaderTime returns no estimate before the first
// transaction, or after the last measurement has become too old.
func TestWriter_LeaderTimeReturnsNoStaleEstimate(t *testing.T) {
	run(t, func(h *writerTest) {
		_, _, ok := h.w.LeaderTime()
		require.False(t, ok)
		h.apply(Transaction{})
		time.Sleep(time.Minute)
		leader, local, ok := h.w.LeaderTime()
		require.True(h, ok)
		require.Equal(h, time.Now(), local)
		require.InDelta(h, 0, leader.Sub(local), float64(2*time.Millisecond))
		time.Sleep(maxAge)
		_, _, ok = h.w.LeaderTime()
		require.False(h, ok)
	})
}
