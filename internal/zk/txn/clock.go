package txn

import "time"

// clock is an estimate of the clock of the ensemble's leader, which sets the time of every transaction. It
// advances by the local monotonic clock, and ends if the two local clocks diverge, because the monotonic
// clock may have stopped while the machine was suspended.
type clock struct {
	// leader is what the leader's clock showed at the local time received, when a reply was received.
	leader, received time.Time
	roundTrip        time.Duration
}

const (
	// A reply with a longer round trip than maxRoundTrip is inaccurate. It replaces only an
	// estimate that is not valid or not more accurate.
	maxRoundTrip = time.Second
	// maxAge is how long an estimate is valid. It limits the error if the two clocks run at
	// different rates, or if another server with another clock becomes the leader.
	maxAge = 10 * time.Minute
	// maxDivergence is by how much the local wall clock and the local monotonic clock may diverge.
	// It limits the error by a suspension of the machine.
	maxDivergence = time.Second
)

// update updates the estimate: the leader's clock showed stamp, in milliseconds since 1970, at a
// time between sent and received.
func (c *clock) update(stamp int64, sent, received time.Time) {
	roundTrip := received.Sub(sent)
	_, valid := c.at(received)
	if diverged(sent, received) || valid && roundTrip > maxRoundTrip && roundTrip > c.roundTrip {
		return
	}
	*c = clock{leader: time.UnixMilli(stamp).Add(roundTrip / 2), received: received, roundTrip: roundTrip}
}

// at returns what the leader's clock shows at a local time. If valid is false, it is not known.
func (c *clock) at(local time.Time) (leader time.Time, valid bool) {
	age := local.Sub(c.received)
	return c.leader.Add(age), age < maxAge && !diverged(c.received, local)
}

// diverged reports whether the local clocks have diverged between two local times: the wall clock
// was set, or the monotonic clock has stopped.
func diverged(a, b time.Time) bool {
	return (b.Sub(a) - b.Round(0).Sub(a.Round(0))).Abs() > maxDivergence
}

// updateClock updates the estimate by the time of a transaction whose reply was just received.
func (w *Writer) updateClock(stamp int64, sent time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock.update(stamp, sent, time.Now())
}
