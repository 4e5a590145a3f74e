package txn

import "time"

// clock estimates the clock of the ensemble's leader, which determines the time of every transaction. The estimate
// advances with the local monotonic clock. It becomes invalid if the two local clocks diverge, because the
// monotonic clock may have stopped while the machine was suspended.
type clock struct {
	// leader is the time of the leader's clock at the local time received, at which a reply was received.
	leader, received time.Time
	roundTrip        time.Duration
}

const (
	// maxRoundTrip is the longest round trip of an accurate measurement. A reply with a longer round trip replaces
	// only an estimate that is invalid or has an even longer round trip.
	maxRoundTrip = time.Second
	// maxAge is how long an estimate is valid. It limits the error of the estimate if the two clocks run at
	// different rates, or if another server with another clock becomes the leader.
	maxAge = 10 * time.Minute
	// maxDivergence is by how much the local wall clock and the local monotonic clock may diverge. It limits the
	// error of the estimate after a suspension of the machine.
	maxDivergence = time.Second
)

// update updates the estimate by a reply: the leader's clock showed stamp, in milliseconds since 1970, at a time
// between sent and received.
func (c *clock) update(stamp int64, sent, received time.Time) {
	roundTrip := received.Sub(sent)
	_, valid := c.estimate(received)
	if diverged(sent, received) || valid && roundTrip > maxRoundTrip && roundTrip > c.roundTrip {
		return
	}
	*c = clock{leader: time.UnixMilli(stamp).Add(roundTrip / 2), received: received, roundTrip: roundTrip}
}

// estimate returns the estimated time of the leader's clock at a local time. valid is false if there is no valid
// estimate.
func (c *clock) estimate(local time.Time) (leader time.Time, valid bool) {
	age := local.Sub(c.received)
	return c.leader.Add(age), age < maxAge && !diverged(c.received, local)
}

// diverged reports whether the local clocks have diverged between two local times, because the wall clock was set
// or the monotonic clock has stopped.
func diverged(a, b time.Time) bool {
	return (b.Sub(a) - b.Round(0).Sub(a.Round(0))).Abs() > maxDivergence
}

// updateClock updates the estimate by stamp, the time of a transaction whose reply the writer has just received.
func (w *Writer) updateClock(stamp int64, sent time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock.update(stamp, sent, time.Now())
}
