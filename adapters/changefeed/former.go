package changefeed

import (
	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/protocol"
)

// former determines how the leadership before the candidate's own ended, for
// [leaderelection.Status.FormerErr]. The record shows whether its last holder has released it, but not
// whether that holder ever led: a claim that is not acknowledged in time is released as well.
type former struct {
	renewed uint64 // renewed is the last term in which a heartbeat was observed. Only a leader sends one.
	led     uint64 // led is the term of the candidate's own last leadership.
	err     error  // err is the result as of the last claim.
}

// claim notes that the candidate with this session claims the record, which replaces it.
func (f *former) claim(record protocol.Record, session string) {
	switch {
	case record.Session == session && record.Term != f.led:
		// This claim replaces an earlier claim of the candidate, after which it did not lead, so the
		// result of the earlier claim remains.
	case record.Session != "":
		f.err = leaderelection.ErrLeaseExpired
	case record.Released() && record.Term == f.renewed:
		f.err = leaderelection.ErrResigned
	default:
		f.err = nil
	}
}
