package changefeed

import "time"

// clock is the clock of a candidate. Tests replace the system's clock by clocks that run too fast or too slow.
type clock interface {
	Now() time.Time
	// NewTimer returns a timer that fires after d by this clock.
	NewTimer(d time.Duration) *time.Timer
	// System returns the time of the system's clock at the instant at which this clock shows t.
	System(t time.Time) time.Time
}

type systemClock struct{}

func (systemClock) Now() time.Time                       { return time.Now() }
func (systemClock) NewTimer(d time.Duration) *time.Timer { return time.NewTimer(d) }
func (systemClock) System(t time.Time) time.Time         { return t }
