package simulation

// The clocks of a peer.

import "time"

// clock is a peer's: its rate is not quite right, and its calendar may be quite wrong.
type clock struct {
	w      *world
	rate   float64
	origin time.Duration
	wrong  time.Duration
}

func newClock(w *world) clock {
	return clock{w: w, rate: 0.9975 + 0.005*w.Float64(), origin: w.span(0, time.Hour)}
}

// Now is monotonic.
func (c *clock) Now() time.Duration { return c.origin + time.Duration(float64(c.w.now)*c.rate) }

// Wall is what the calendar says.
func (c *clock) Wall() time.Time {
	return c.w.date().Add(time.Duration(float64(c.w.now)*(c.rate-1)) + c.wrong)
}

// date is what calendars should say.
func (w *world) date() time.Time {
	return time.Unix(1_700_000_000, 0).Add(w.now + w.users.lapsed)
}
