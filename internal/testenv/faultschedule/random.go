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
