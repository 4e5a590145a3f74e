package changefeed

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-leaderelection/leaderelection"
)

// Elect requests that the leader hands over to the candidate id. The other candidates wait
// for an election timeout before they claim the record themselves. If there is no leader,
// the record is reserved in the same way. Elect returns when the request is written, before
// it takes effect. It does not check whether the candidate exists. It may be called before
// ElectLeader and after the candidacy. The target may be this candidate, as in e.Elect(ctx,
// e.ID()), or the current leader. The reservation expires if the target does not become
// leader within the election timeout.
//
// Errors: [leaderelection.ErrInvalid] if id is not a valid ID,
// [leaderelection.ErrElectionOver], [leaderelection.ErrNoElection] if the record does not exist,
// and [leaderelection.ErrUnconfirmed] if ctx was done first.
func (e *Election) Elect(ctx context.Context, id string) error {
	if err := checkID(id); err != nil {
		return fmt.Errorf("%w: Elect: %w", leaderelection.ErrInvalid, err)
	}
	r, err := updateRecord(ctx, e.opts, e.store, func(r *Record) bool {
		if r.Ended || r.Nominee == id || r.Leader == id && r.Nominee == "" {
			return false
		}
		if r.Nominee = id; r.Leader == id {
			r.Nominee = "" // The target is the leader, and remains it.
		}
		return true
	})
	switch {
	case errors.Is(err, ErrNoRecord):
		return fmt.Errorf("changefeed: elect %q: %w (%w)", id, leaderelection.ErrNoElection, err)
	case err != nil:
		return fmt.Errorf("changefeed: elect %q: %w", id, err)
	case r.Ended:
		return fmt.Errorf("changefeed: elect %q: %w", id, leaderelection.ErrElectionOver)
	}
	e.observeWritten(r)
	return nil
}
