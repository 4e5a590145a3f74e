package txn

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The estimate uses the newest reply, but not a slow reply if a better one is not too old.
func TestClock(t *testing.T) {
	begin := time.UnixMilli(1_000_000)
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	ms := time.Millisecond
	var c clock
	c.update(1_000_600, at(0), at(200))
	require.Equal(t, 500*ms, c.offset)
	c.update(1_009_000, at(1000), at(9000)) // a slow reply
	require.Equal(t, 500*ms, c.offset)
	c.update(1_010_410, at(10_000), at(10_020))
	require.Equal(t, 400*ms, c.offset)
	c.update(1_200_000, at(100_000), at(103_000)) // a slow reply, but the last good one is old
	require.Equal(t, 98_500*ms, c.offset)
}

func TestWriter_ClockOffset(t *testing.T) {
	run(t, func(h *harness) {
		_, ok := h.w.ClockOffset()
		require.False(h, ok)
		h.apply(Transaction{})
		offset, ok := h.w.ClockOffset()
		require.True(h, ok)
		require.InDelta(h, 0, offset, float64(2*time.Millisecond))
	})
}
