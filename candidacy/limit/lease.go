package limit

import "time"

// Elapsed returns the time from a to b, by the monotonic clock or by the wall clock, whichever is
// longer: the monotonic clock stops while a machine is suspended (golang/go#24595), and the wall clock
// can be set back. It is for times after which something may have expired.
func Elapsed(a, b time.Time) time.Duration {
	return max(b.Sub(a), b.Round(0).Sub(a.Round(0)))
}

// Left returns the time from now until deadline, by the monotonic clock or by the wall clock, whichever
// is shorter. It is negative after the deadline.
func Left(deadline, now time.Time) time.Duration { return -Elapsed(deadline, now) }

// Expired reports whether deadline has passed at the time now, by the monotonic clock or by the wall
// clock.
func Expired(deadline, now time.Time) bool { return Elapsed(deadline, now) >= 0 }
