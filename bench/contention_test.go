package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
)

var oneSecondAfterWarmup = benchmark.Period{Warmup: time.Second, Length: time.Second}

// TestSummarizeCycles_LimitsRateToMeasuredPeriod checks that locks acquired during the warm-up or after the measured
// period do not count for the rate, but do count for the total number of locks, by which the processor time is
// divided.
func TestSummarizeCycles_LimitsRateToMeasuredPeriod(t *testing.T) {
	const start, ms = 1e12, int64(time.Millisecond)
	at := func(granted int64) lockCycle {
		return lockCycle{0, start + granted*ms, start + (granted+10)*ms, start + (granted+15)*ms}
	}
	// The cycles are sorted by session, not by time.
	c, err := summarizeCycles([]lockCycle{at(900), at(1100), at(1990), at(100), at(1000)}, start, oneSecondAfterWarmup)
	require.NoError(t, err)
	require.Equal(t, 5, c.locks)
	require.Equal(t, 2.0, c.rate)
	require.Equal(t, 90*time.Millisecond, c.handOver, "the median of 90, 90 and 880 ms")
}

// TestSummarizeCycles_FailsIfLocksOverlap checks that summarizeCycles fails if two sessions held the same lock at the
// same time, so that no figures of a broken lock are reported.
func TestSummarizeCycles_FailsIfLocksOverlap(t *testing.T) {
	_, err := summarizeCycles([]lockCycle{{0, 10, 20, 30}, {0, 19, 40, 50}}, 0, oneSecondAfterWarmup)
	require.ErrorIs(t, err, errOverlap)
	_, err = summarizeCycles([]lockCycle{{0, 10, 20, 30}, {0, 20, 40, 50}}, 0, oneSecondAfterWarmup)
	require.NoError(t, err, "the next session may have the lock before the release returns")
	_, err = summarizeCycles([]lockCycle{{0, 10, 20, 30}, {1, 10, 20, 30}}, 0, oneSecondAfterWarmup)
	require.NoError(t, err, "different locks may be held at the same time")
}

// TestCountCompletions_OmitsWarmup checks that countCompletions omits operations that complete during the warm-up.
func TestCountCompletions_OmitsWarmup(t *testing.T) {
	times := []int64{0, int64(time.Second) - 1, int64(time.Second), int64(2*time.Second) - 1, int64(2 * time.Second)}
	require.Equal(t, completions{counted: 2, total: 5}, countCompletions(0, times, oneSecondAfterWarmup))
}
