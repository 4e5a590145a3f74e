package changefeed

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/protocol"
	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

// EndElection implements [leaderelection.Candidate]. It marks the record as ended, as
// [DeleteElection] does. After that no candidate can become leader, and the leader stops
// when it learns of it from its feed or its next heartbeat. If the write is not confirmed
// in time, this candidacy ends nevertheless, and the attempt continues until it succeeds or
// the store is closed.
func (e *Election) EndElection() error {
	return e.candidacy.End("changefeed: end election", func() error {
		r, err := endElection(context.WithoutCancel(e.opts.ctx), e.opts, e.store)
		if err == nil {
			e.observeWritten(r)
		}
		return err
	})
}

// DeleteElection ends the election whose record is kept by store, for all candidates
// including the leader. It returns within ten seconds. The record remains, marked as ended,
// so that all candidates learn of the end: if it were deleted, the candidates would
// consider it lost and create it again. If the record does not exist, it is created and
// marked as ended, or, with [WithoutCreate], nothing is done. [RestartElection] allows a
// new election.
//
// Errors are those of [NewElection], and [leaderelection.ErrUnconfirmed] if the store did
// not answer in time or the context of [WithContext] was done. DeleteElection may be called
// again.
func DeleteElection(store Store, opts ...Option) error {
	return withStartedStore(store, opts, func(ctx context.Context, o *options) error {
		_, err := endElection(ctx, o, store)
		return err
	})
}

// RestartElection replaces a record that is marked as ended by an unclaimed record, so that a new
// election can take place. The tokens of the new election are greater than all earlier tokens.
// Candidates that have not noticed yet that the previous election has ended also end, and do not take
// part in the new election.
//
// Errors are those of [DeleteElection], [ErrNotEnded] if the election has not ended, and
// [leaderelection.ErrNoElection] if the record does not exist.
func RestartElection(store Store, opts ...Option) error {
	return withStartedStore(store, opts, func(ctx context.Context, o *options) error {
		notEnded, random := false, randomID()
		_, err := updateRecord(ctx, o, store, func(r *Record) bool {
			generation := r.Generation()
			if r.Epoch == protocol.Epoch(generation, random) {
				notEnded = false // An attempt whose response was lost has restarted the election.
				return false
			}
			if notEnded = !r.Ended; notEnded {
				return false
			}
			// Keep a TTL, so that candidates wait: the last leader may not know of the end until its lease expires.
			*r = Record{
				Epoch: protocol.Epoch(generation+1, random), Term: protocol.FirstTerm(r.Term, o.wallTime()),
				TTL: max(o.cfg.Lease, r.TTL),
			}
			return true
		})
		switch {
		case errors.Is(err, ErrNoRecord):
			return fmt.Errorf("%w (%w)", leaderelection.ErrNoElection, err)
		case err == nil && notEnded:
			return ErrNotEnded
		}
		return err
	})
}

// Generation returns the number of times that [RestartElection] has restarted the election. Each
// candidate of an earlier generation ends with [leaderelection.ErrElectionOver].
func (r Record) Generation() uint64 { return protocol.Generation(r.Epoch) }

// endElection marks the record as ended, and returns it. If the record does not exist, it creates an ended record,
// unless WithoutCreate is given.
func endElection(ctx context.Context, o *options, store Store) (Record, error) {
	for {
		r, err := updateRecord(ctx, o, store, func(r *Record) bool {
			changed := !r.Ended
			r.Ended = true
			return changed
		})
		switch {
		case !errors.Is(err, ErrNoRecord):
			return r, err
		case !o.create:
			return r, nil
		}
		ended := o.unclaimedRecord()
		ended.Ended = true
		err = store.Create(ctx, ended) // If another client has created the record first, the next pass marks that record.
		switch {
		case errors.Is(err, ErrNoRecord):
			return Record{}, nil // The table or bucket does not exist, so there are no candidates.
		case err != nil && (ctx.Err() != nil || errors.Is(err, ErrClosed) || errors.Is(err, ErrUnsuitable)):
			return Record{}, wrapUnconfirmed(ctx, err)
		}
		if limit.Pause(ctx, o.heartbeat>>6) != nil {
			return Record{}, wrapUnconfirmed(ctx, ctx.Err())
		}
	}
}
