package child

import (
	"time"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

// limits determine when a process group that has received TERM receives KILL. The results depend only on the
// arguments and the limits.
type limits struct {
	Grace, LostGrace time.Duration
}

// untilKill returns the time from now until KILL. stopTime is the time at which the group received TERM. leaseEnd is
// zero if there is no lease. Because timers and the monotonic clock stop while the machine is suspended, a lease also
// expires by the wall clock, and the caller must compute the result again periodically.
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
