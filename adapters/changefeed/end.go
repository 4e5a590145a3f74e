package changefeed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/protocol"
)

// Resign implements [leaderelection.Candidate]. If this candidate is the leader, Resign
// closes Leadership.Done and then releases the record, so that another candidate can become
// leader immediately. If the store does not answer, the release is retried in the
// background for two election timeouts, after which other candidates can become leader
// without it, and Resign keeps returning [leaderelection.ErrUnconfirmed].
func (e *Election) Resign() error {
	e.candidacy.Stop(leaderelection.ErrResigned)
	<-e.candidacy.Done()
	if !e.held.Load() {
		return nil
	}
	return fmt.Errorf("changefeed: resign: %w: the record may still name %q as leader", leaderelection.ErrUnconfirmed, e.cfg.ID)
}

// EndElection implements [leaderelection.Candidate]. It marks the record as ended, as
// [DeleteElection] does. After that no candidate can become leader, and the leader stops
// when it learns of it from its feed or its next heartbeat. If the write is not confirmed
// in time, this candidacy ends nevertheless, and the attempt continues until it succeeds or
// the store is closed.
func (e *Election) EndElection() error {
	return e.candidacy.End("changefeed: end election", func() error {
		r, err := endElection(context.WithoutCancel(e.ctx), e.options, e.store)
		if err == nil {
			e.tell(r)
		}
		return err
	})
}

// tell has the candidacy under way, if there is one, know of a record at once.
func (e *Election) tell(r Record) {
	if !e.running.Load() {
		return
	}
	select {
	case e.seen <- r:
	case <-e.candidacy.Done(): // requests may still be under way, and nobody takes anything
	}
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
	return withRecord(store, opts, func(ctx context.Context, o *options) error {
		_, err := endElection(ctx, o, store)
		return err
	})
}

// RestartElection replaces a record that is marked as ended by an unclaimed record, so that
// a new election can take place. Its tokens are greater than before. Candidates of the
// ended election that have not noticed its end will end as well.
//
// Errors are those of [DeleteElection], [ErrNotEnded] if the election has not ended, and
// [leaderelection.ErrNoElection] if the record does not exist.
func RestartElection(store Store, opts ...Option) error {
	return withRecord(store, opts, func(ctx context.Context, o *options) error {
		goesOn := false
		_, err := amend(ctx, o, store, func(r *Record) bool {
			if goesOn = !r.Ended; goesOn {
				return false
			}
			// Whoever led last may act for a lease still.
			*r = Record{
				Epoch: protocol.Epoch(protocol.Generation(r.Epoch)+1, randomID()), Term: protocol.FirstTerm(r.Term, o.wall()),
				TTL: max(o.cfg.Lease, r.TTL),
			}
			return true
		})
		switch {
		case errors.Is(err, ErrNoRecord):
			return fmt.Errorf("%w (%w)", leaderelection.ErrNoElection, err)
		case err == nil && goesOn:
			return ErrNotEnded
		}
		return err
	})
}

// withRecord does what changes a record from outside a candidacy.
func withRecord(store Store, opts []Option, f func(context.Context, *options) error) error {
	o, err := newOptions(opts)
	if err != nil {
		return err
	}
	if store == nil {
		return fmt.Errorf("changefeed: the store is nil: %w", leaderelection.ErrNilConn)
	}
	ctx, cancel := context.WithTimeoutCause(o.ctx, startLimit, leaderelection.ErrUnreachable)
	defer cancel()
	if err := store.Start(ctx); err != nil {
		return o.refine(ctx, "start the store", err)
	}
	return f(ctx, o)
}

// endElection marks the record as ended, and makes one if there is none.
func endElection(ctx context.Context, o *options, store Store) (Record, error) {
	for {
		r, err := amend(ctx, o, store, func(r *Record) bool {
			ended := r.Ended
			r.Ended = true
			return !ended
		})
		if !errors.Is(err, ErrNoRecord) || !o.create {
			if errors.Is(err, ErrNoRecord) {
				err = nil
			}
			return r, err
		}
		// Lost, or there never was one: made as it is to be, unless somebody is quicker.
		blank := o.blank()
		blank.Ended = true
		err = store.Create(ctx, blank)
		switch {
		case errors.Is(err, ErrNoRecord):
			return Record{}, nil // there is nothing to keep a record in: nobody can take part
		case err != nil && (ctx.Err() != nil || errors.Is(err, ErrClosed) || errors.Is(err, ErrUnsuitable)):
			return Record{}, unconfirmed(ctx, err)
		}
		if !sleep(ctx, o.heartbeat>>6) {
			return Record{}, unconfirmed(ctx, ctx.Err())
		}
	}
}

// Elect requests that the leader hands over to the candidate id. The other candidates wait
// for an election timeout before they claim the record themselves. If there is no leader,
// the record is reserved in the same way. Elect returns when the request is written, before
// it takes effect. It does not check whether the candidate exists. It may be called before
// ElectLeader and after the candidacy. The target may be this candidate, as in e.Elect(ctx,
// e.ID()), or the current leader. The reservation expires if the target does not become
// leader within the election timeout.
//
// Errors: [leaderelection.ErrInvalidOption] if id is not a valid ID,
// [leaderelection.ErrElectionOver], [leaderelection.ErrNoElection] if the record does not exist,
// and [leaderelection.ErrUnconfirmed] if ctx was done first.
func (e *Election) Elect(ctx context.Context, id string) error {
	if err := checkID(id); err != nil {
		return fmt.Errorf("%w: Elect: %w", leaderelection.ErrInvalidOption, err)
	}
	r, err := amend(ctx, e.options, e.store, func(r *Record) bool {
		if r.Ended || r.Nominee == id || r.Leader == id && r.Nominee == "" {
			return false
		}
		if r.Nominee = id; r.Leader == id {
			r.Nominee = "" // it leads already, and keeps what it has
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
	e.tell(r)
	return nil
}

// amend changes the record, by compare-and-set, until that has succeeded, or nothing is
// to be changed; and returns what there is then. The change is made again of a newer
// record, and of the same when the answer was lost: it must be such that this does no
// harm. ErrNoRecord is returned at once.
func amend(ctx context.Context, o *options, store Store, change func(*Record) bool) (Record, error) {
	for fails := 0; ; fails++ {
		r, err := try(ctx, o, store, change)
		switch {
		case err == nil, errors.Is(err, ErrNoRecord):
			return r, err
		case errors.Is(err, ErrClosed), errors.Is(err, ErrUnsuitable), ctx.Err() != nil:
			return r, unconfirmed(ctx, err)
		case errors.Is(err, ErrConflict):
			fails = min(fails, 2) // somebody else has got on
		}
		if !sleep(ctx, o.heartbeat>>max(1, 7-fails)) {
			return r, unconfirmed(ctx, err)
		}
	}
}

func try(ctx context.Context, o *options, store Store, change func(*Record) bool) (Record, error) {
	ctx, cancel := context.WithTimeout(ctx, max(o.timeout(), time.Second))
	defer cancel()
	r, err := store.Read(ctx)
	if err == nil {
		err = check(r)
	}
	if err != nil {
		return Record{}, err
	}
	next := r
	if !change(&next) {
		return r, nil
	}
	next.Seq, next.Time, next.Version = r.Seq+1, time.Time{}, ""
	return store.Heartbeat(ctx, r, next)
}

func unconfirmed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w: %w", leaderelection.ErrUnconfirmed, context.Cause(ctx), err)
	}
	return err
}

// sleep reports whether ctx has lasted for d.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
