package child

import (
	"time"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

// limits determine when a group that was stopped receives KILL. The methods depend on nothing else.
type limits struct {
	Grace, LostGrace time.Duration
}

// untilKill returns the time from now until KILL. stopTime is when the group was stopped. leaseEnd is
// zero if there is no lease. Timers and the monotonic clock stop while the machine is suspended,
// so the lease counts by the wall clock as well, and the result must be computed again periodically.
func (l limits) untilKill(stopTime, leaseEnd, now time.Time) time.Duration {
	left := stopTime.Add(l.Grace).Sub(now)
	if leaseEnd.IsZero() {
		return left
	}
	lost := leaseEnd
	if limit.Expired(leaseEnd, stopTime) {
		lost = stopTime
	}
	return min(left, limit.Left(lost.Add(l.LostGrace), now))
}

// checkInterval returns the time between two checks of a lease.
func (l limits) checkInterval() time.Duration {
	return min(max(l.LostGrace/2, 10*time.Millisecond), 250*time.Millisecond)
}
