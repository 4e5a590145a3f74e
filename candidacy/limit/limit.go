// Package limit contains functions that elections and recipes share. They determine whether a lease has
// expired, limit how long a call waits, and keep only the newest value in a channel.
package limit

import (
	"context"
	"fmt"
	"time"
)

// Confirm limits how long a call that ends a candidacy, a hold or a delivery waits until the servers
// have confirmed the end. After this time the request continues in the background, and the whole
// call takes less than two seconds.
const Confirm = 1500 * time.Millisecond

// ErrConfirm is returned if a call has stopped waiting because the servers have not answered within Confirm.
var ErrConfirm = fmt.Errorf("no answer within %v; the request continues in the background", Confirm)

// Await waits until done is closed, or until the time end, and reports whether done is closed.
func Await(done <-chan struct{}, end time.Time) bool {
	select {
	case <-done:
		return true
	default:
	}
	timer := time.NewTimer(time.Until(end))
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
	}
	select {
	case <-done: // done may have been closed when the timer fired
		return true
	default:
		return false
	}
}

// Pause waits for d, or returns the cause of the context if that is done first.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Elapsed returns the time from a to b, by the monotonic clock or by the wall clock, whichever is
// longer: the monotonic clock stops while a machine is suspended (golang/go#24595), and the wall clock
// can be set back. Use it to find out whether something may have expired between a and b.
func Elapsed(a, b time.Time) time.Duration {
	return max(b.Sub(a), b.Round(0).Sub(a.Round(0)))
}

// Left returns the time from now until deadline, by the monotonic clock or by the wall clock, whichever
// is shorter. It is negative after the deadline.
func Left(deadline, now time.Time) time.Duration { return -Elapsed(deadline, now) }

// Expired reports whether deadline has passed at the time now, by the monotonic clock or by the wall
// clock.
func Expired(deadline, now time.Time) bool { return Elapsed(deadline, now) >= 0 }
