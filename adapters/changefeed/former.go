package changefeed

import (
	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/protocol"
)

// former determines how the leadership before the candidate's own ended, for
// [leaderelection.Status.FormerErr]. The record shows whether the candidate that claimed it last has
// released it, but not whether that candidate ever led: a candidate also releases the record if its
// claim was not acknowledged in time.
type former struct {
	renewed uint64 // renewed is the last term in which a heartbeat was observed. Only a leader sends heartbeats.
	led     uint64 // led is the term of the candidate's own last leadership.
	err     error  // err is the value of FormerErr as determined by the last claim.
}

// claim determines err for the leadership that can begin when the candidate, which has the given session,
// replaces record by its claim.
func (f *former) claim(record protocol.Record, session string) {
	switch {
	case record.Session == session && record.Term != f.led:
		// The candidate repeats its claim, because it did not lead after the previous one. So err keeps the value
		// that the previous claim has set.
	case record.Session != "":
		f.err = leaderelection.ErrLeaseExpired
	case record.Released() && record.Term == f.renewed:
		f.err = leaderelection.ErrResigned
	default:
		f.err = nil
	}
}
