package txn

import "time"

// clock is an estimate of the clock of the ensemble's leader, which sets the time of every
// transaction.
type clock struct {
	known bool
	// offset is by how much the leader's clock is ahead of this process's clock.
	offset time.Duration
	// roundTrip is the round trip of the reply from which offset was computed.
	roundTrip time.Duration
	// received is the time when that reply was received.
	received time.Time
}

const (
	// A reply with a longer round trip than maxRoundTrip is inaccurate. It is used only if the
	// current estimate is older than maxAge, or is not more accurate.
	maxRoundTrip = time.Second
	maxAge       = time.Minute
)

// update updates the estimate: the leader's clock showed stamp, in milliseconds since 1970, at a
// time between sent and received.
func (c *clock) update(stamp int64, sent, received time.Time) {
	roundTrip := received.Sub(sent)
	if c.known && roundTrip > maxRoundTrip && roundTrip > c.roundTrip && received.Sub(c.received) < maxAge {
		return
	}
	offset := time.UnixMilli(stamp).Sub(sent.Round(0).Add(roundTrip / 2))
	*c = clock{known: true, offset: offset, roundTrip: roundTrip, received: received}
}

// updateClock updates the estimate by the time of a transaction whose reply was just received.
func (w *Writer) updateClock(stamp int64, sent time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock.update(stamp, sent, time.Now())
}
