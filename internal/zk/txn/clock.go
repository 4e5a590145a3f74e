package txn

import "time"

// clock is what is known of the clock of the ensemble's leader, which gives
// every transaction its time.
type clock struct {
	known  bool
	offset time.Duration // ahead of this process's
	trip   time.Duration // of the answer that told
	at     time.Time
}

const (
	// An answer that took long tells little: it is used only when the last good
	// one is old.
	goodTrip = time.Second
	goodFor  = time.Minute
)

// told takes in that the leader's clock showed stamp, in milliseconds since
// 1970, between sent and answered.
func (c *clock) told(stamp int64, sent, answered time.Time) {
	trip := answered.Sub(sent)
	if c.known && trip > goodTrip && trip > c.trip && answered.Sub(c.at) < goodFor {
		return
	}
	*c = clock{known: true, offset: time.UnixMilli(stamp).Sub(sent.Round(0).Add(trip / 2)), trip: trip, at: answered}
}
