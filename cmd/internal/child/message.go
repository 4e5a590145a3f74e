package child

import "time"

// watchdogName is the only argument of a watchdog process, by which [RunWatchdog] recognizes it.
const watchdogName = "elector-watchdog"

// The messages between parent and watchdog: the parent sends a task, and then instructions, and the watchdog sends
// reports. Each message is one line of JSON. A task does not contain the environment, because the program inherits
// the environment of its watchdog.
type (
	task struct {
		Args [][]byte // bytes instead of strings, which would have to be UTF-8 in JSON
		limits
		Sweep, Leased bool
		Lease         lease
	}
	instruction struct {
		Lease  *lease // Lease is the new deadline of the lease; nil if the deadline does not change
		Signal int    // Signal is the number of a signal for the program; 0 for none
		Stop   bool   // Stop requests the watchdog to stop the process group
	}
	report struct {
		Started  int // the process ID of the program, which is also the ID of its group
		NotFound bool
		Err      string
		Exit     *Exit
	}
)

// lease is a deadline that one process sends to another process on the same machine. It contains
// the wall-clock time and the remaining time, and the earlier one counts: the wall clock can be set
// back, and the remaining time does not include the time in transit.
type lease struct {
	Wall int64 // the wall clock's time in nanoseconds since 1970
	Left time.Duration
}

func newLease(deadline time.Time) lease {
	return lease{deadline.UnixNano(), time.Until(deadline)}
}

// deadline returns the deadline on the clock of this process.
func (l lease) deadline() time.Time {
	now := time.Now()
	return now.Add(min(l.Left, time.Unix(0, l.Wall).Sub(now.Round(0))))
}
