// Package limit contains the time limit that all elections and recipes share.
package limit

import (
	"fmt"
	"time"
)

// Confirm is the time in which the servers should confirm that a candidacy, a hold or a delivery has
// ended. After that the caller stops waiting, and the request continues in the background. So the
// whole call takes less than two seconds.
const Confirm = 1500 * time.Millisecond

// ErrConfirm is the reason why a call has stopped waiting.
var ErrConfirm = fmt.Errorf("no answer within %v; the request continues in the background", Confirm)

// Await waits until done is closed, but not after end. It reports whether done is closed.
func Await(done <-chan struct{}, end time.Time) bool {
	timer := time.NewTimer(time.Until(end))
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
	}
	select {
	case <-done: // at the same time
		return true
	default:
		return false
	}
}
