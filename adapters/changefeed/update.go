package changefeed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

// updateRecord applies change to the record by compare-and-set, and returns the record afterwards.
// change returns false if nothing has to be changed. After a failure, updateRecord tries again with
// the newest record. That may already contain the change, if only the response was lost, so applying
// change twice must have the same result as applying it once. If the record does not exist,
// updateRecord returns ErrNoRecord immediately.
func updateRecord(ctx context.Context, o *options, store Store, change func(*Record) bool) (Record, error) {
	for failures := 0; ; failures++ {
		r, err := tryUpdate(ctx, o, store, change)
		switch {
		case err == nil, errors.Is(err, ErrNoRecord):
			return r, err
		case errors.Is(err, ErrClosed), errors.Is(err, ErrUnsuitable), ctx.Err() != nil:
			return r, wrapUnconfirmed(ctx, err)
		case errors.Is(err, ErrConflict):
			failures = min(failures, 2) // Retry soon: another client has written.
		}
		if limit.Pause(ctx, o.heartbeat>>max(1, 7-failures)) != nil {
			return r, wrapUnconfirmed(ctx, err)
		}
	}
}

// tryUpdate makes one attempt of updateRecord: it reads the record, changes it and writes it.
func tryUpdate(ctx context.Context, o *options, store Store, change func(*Record) bool) (Record, error) {
	ctx, cancel := context.WithTimeout(ctx, max(o.requestTimeout(), time.Second))
	defer cancel()
	r, err := store.Read(ctx)
	if err == nil {
		err = validateRecord(r)
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

// observeWritten passes a written record to the candidacy, if it is in progress, so that it does not have to wait
// until its feed delivers the record.
func (e *Election) observeWritten(r Record) {
	if !e.started.Load() {
		return
	}
	select {
	case e.written <- r:
	case <-e.candidacy.Done(): // The runner handles no inputs any more, although it may still wait for requests.
	}
}

// wrapUnconfirmed adds ErrUnconfirmed to the error of a write, if ctx is done.
func wrapUnconfirmed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w: %w", leaderelection.ErrUnconfirmed, context.Cause(ctx), err)
	}
	return err
}
