package changefeed

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

// ErrNotTransferred is the error of [Transfer] if the candidate id did not become leader.
var ErrNotTransferred = leaderelection.ErrNotTransferred

// Transfer requests that the leader hands over to the candidate id, and returns nil when this
// candidate leads. If the leader's program calls [Election.ResignRequested], as package elector does, it first ends
// its work. The other candidates wait for an election timeout before they claim the record
// themselves. If there is no leader, the record is reserved for the candidate in the same way. Anyone may call
// Transfer, also the candidate itself, with its [Election.ID].
//
// Transfer blocks until the outcome is known, and tries again after transient errors of the store. If ctx is done
// first, Transfer withdraws the request, which takes at most two seconds, and returns the cause of ctx. If the
// leader's program has already learned of the request from ResignRequested, it resigns nevertheless, and then any
// candidate can lead. Options that concern only candidates have no effect; [WithHeartbeat] should have the value
// that the candidates use.
//
// Other errors: [ErrNotTransferred] if the candidate has not claimed the record within the election
// timeout, because it does not exist or cannot reach the store, if another request has replaced this
// one, or if the candidate has led and has already resigned; [leaderelection.ErrInvalid] if an argument
// is not valid; [leaderelection.ErrElectionOver]; [leaderelection.ErrNoElection] if the record does not
// exist; and [leaderelection.ErrUnconfirmed] if the store did not confirm that the request was written,
// or withdrawn, in time.
func Transfer(ctx context.Context, store Store, id string, opts ...Option) error {
	return transferFrom(ctx, store, nil, id, opts...)
}

// transferFrom is [Transfer] with a condition: if from is not nil, it requests the transfer only
// while the record has the leader and the term of from, and no other transfer is requested.
func transferFrom(ctx context.Context, store Store, from *Record, id string, opts ...Option) error {
	err := checkID(id)
	if err != nil {
		err = fmt.Errorf("%w: %w", leaderelection.ErrInvalid, err)
	} else {
		err = withStartedStore(store, slices.Concat(opts, []Option{WithContext(ctx)}), func(ctx context.Context, o *options) error {
			return transfer(ctx, o, store, from, id)
		})
	}
	if errors.Is(err, ErrNoRecord) {
		err = fmt.Errorf("%w (%w)", leaderelection.ErrNoElection, err)
	}
	if err != nil {
		return fmt.Errorf("changefeed: transfer to %q: %w", id, err)
	}
	return nil
}

// transfer writes the request to the record and waits for its outcome. Only the write is limited by startLimit.
func transfer(ctx context.Context, o *options, store Store, from *Record, id string) error {
	r, err := updateRecord(ctx, o, store, func(r *Record) bool {
		if r.Ended || r.Nominee == id || r.Leader == id && r.Nominee == "" ||
			from != nil && (r.Leader != from.Leader || r.Term != from.Term || r.Nominee != "") {
			return false
		}
		if r.Nominee = id; r.Leader == id {
			r.Nominee = "" // The candidate is the leader already.
		}
		return true
	})
	for ; err == nil; r, err = updateRecord(o.ctx, o, store, func(*Record) bool { return false }) {
		switch {
		case r.Ended:
			return leaderelection.ErrElectionOver
		case r.Leader == id:
			return nil
		case r.Nominee != "" && r.Nominee != id:
			return fmt.Errorf("%w: a transfer to %q was requested since", ErrNotTransferred, r.Nominee)
		case r.Nominee == "" && r.Leader != "":
			return fmt.Errorf("%w: %q leads", ErrNotTransferred, r.Leader)
		case r.Nominee == "":
			return fmt.Errorf("%w: the request was removed from the record", ErrNotTransferred)
		}
		if limit.Pause(o.ctx, o.heartbeat/8) != nil {
			break
		}
	}
	if o.ctx.Err() != nil {
		return errors.Join(context.Cause(o.ctx), withdrawTransfer(o, store, id))
	}
	return err
}

// withdrawTransfer removes the request of a transfer from the record, unless another request has
// replaced it.
func withdrawTransfer(o *options, store Store, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(o.ctx), limit.Confirm)
	defer cancel()
	_, err := updateRecord(ctx, o, store, func(r *Record) bool {
		withdrawn := r.Nominee == id
		if withdrawn {
			r.Nominee = ""
		}
		return withdrawn
	})
	return err
}
