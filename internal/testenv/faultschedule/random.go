// The functions in this file must not change the order in which they draw random numbers, because tests
// contain seeds of schedules.

package faultschedule

import (
	"math/rand/v2"
	"time"
)

// RandomDuration returns a duration of at most 2*t. Most durations are short, because most defects
// need events that are close to each other.
func RandomDuration(r *rand.Rand, t time.Duration) time.Duration {
	switch r.IntN(6) {
	case 0:
		return 0
	case 1:
		return time.Duration(r.IntN(5000)) * time.Microsecond
	case 2, 3:
		return time.Duration(r.Int64N(int64(t / 8)))
	case 4:
		return time.Duration(r.Int64N(int64(t)))
	}
	return time.Duration(r.Int64N(int64(2 * t)))
}

// RandomTick returns a tick time for an ensemble.
func RandomTick(r *rand.Rand) time.Duration {
	return []time.Duration{100, 250, 500}[r.IntN(3)] * time.Millisecond
}

// RandomSessionTimeout returns a session timeout for an ensemble with the given tick. Many of the timeouts are as
// short as possible, because leases then have the smallest margin.
func RandomSessionTimeout(r *rand.Rand, tick time.Duration) time.Duration {
	return max(tick*time.Duration(2+r.IntN(5)*r.IntN(3)), 400*time.Millisecond)
}

// RandomLatency returns a latency for an ensemble in each direction. The latency is often 0.
func RandomLatency(r *rand.Rand) time.Duration {
	return []time.Duration{0, 0, 1, 7}[r.IntN(4)] * time.Millisecond
}
