package simulation

// This file simulates the clocks of the peers.

import "time"

// clock is the clock of a peer. Its rate differs slightly from the virtual time, and its wall clock can
// be wrong by minutes.
type clock struct {
	h      *harness
	rate   float64
	origin time.Duration
	offset time.Duration // how far the wall clock is ahead of the correct time; negative if it is behind
}

func newClock(h *harness) clock {
	return clock{h: h, rate: 0.9975 + 0.005*h.rand.Float64(), origin: h.duration(0, time.Hour)}
}

// Now implements core.Clock.
func (c *clock) Now() time.Duration { return c.origin + time.Duration(float64(c.h.now)*c.rate) }

// Wall implements core.Clock.
func (c *clock) Wall() time.Time {
	return c.h.wallTime().Add(time.Duration(float64(c.h.now)*(c.rate-1)) + c.offset)
}

// wallTime returns the time that a correct wall clock shows.
func (h *harness) wallTime() time.Time {
	return time.Unix(1_700_000_000, 0).Add(h.now + h.clients.clockOffset)
}
