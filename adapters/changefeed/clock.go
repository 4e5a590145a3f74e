package changefeed

import "time"

// clock is what time is read from. Tests put one there that runs too fast or too slow.
type clock interface {
	Now() time.Time
	// NewTimer is one for d of this clock's time.
	NewTimer(d time.Duration) *time.Timer
	// System says when, by the system's clock, this one will show t.
	System(t time.Time) time.Time
}

type system struct{}

func (system) Now() time.Time                       { return time.Now() }
func (system) NewTimer(d time.Duration) *time.Timer { return time.NewTimer(d) }
func (system) System(t time.Time) time.Time         { return t }
