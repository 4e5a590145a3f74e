package txn

import "time"

// clock is an estimate of the clock of the ensemble's leader, which sets the time of every
// transaction.
type clock struct {
	known  bool
	offset time.Duration // by how much it is ahead of this process's clock
	trip   time.Duration // the round trip of the reply from which the offset was computed
	at     time.Time     // when that reply was received
}

const (
	// A reply that took longer than goodTrip is inexact: it is used only if the last good reply is
	// older than goodFor.
	goodTrip = time.Second
	goodFor  = time.Minute
)

// told updates the estimate: the leader's clock showed stamp, in milliseconds since 1970, at a time
// between sent and answered.
func (c *clock) told(stamp int64, sent, answered time.Time) {
	trip := answered.Sub(sent)
	if c.known && trip > goodTrip && trip > c.trip && answered.Sub(c.at) < goodFor {
		return
	}
	*c = clock{known: true, offset: time.UnixMilli(stamp).Sub(sent.Round(0).Add(trip / 2)), trip: trip, at: answered}
}
