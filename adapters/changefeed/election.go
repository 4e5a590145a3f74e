package changefeed

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/protocol"
	"github.com/go-leaderelection/leaderelection/candidacy"
	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/event"
)

// Election is a candidate in the election whose record is kept by a store. It implements
// [leaderelection.Candidate]. Create it with [NewElection]. Its methods may be called from
// any goroutine.
type Election struct {
	opts      *options
	store     Store
	candidacy candidacy.Candidacy
	// started reports whether ElectLeader was called.
	started atomic.Bool
	// written receives the records that EndElection has written, so that the candidacy learns of the end at once.
	written chan Record
	// mayHold reports whether, although the candidacy is over, the record may still contain the candidate as
	// leader. Resign then returns ErrUnconfirmed.
	mayHold atomic.Bool
	// listens reports whether ResignRequested was called: then the candidate does not hand over by itself when a
	// transfer is requested, but calls requestResign, which closes the channel that ResignRequested returns.
	listens       atomic.Bool
	requested     chan struct{}
	requestResign func()
	// ready reports whether the candidate could take over now: its feed works and the store accepts its writes.
	ready atomic.Bool
}

var _ leaderelection.Candidate = (*Election)(nil)

// Errors of elections, in addition to those of package leaderelection and of stores, to be
// tested with errors.Is.
var (
	// ErrStale is the error of [event.WatchFailed] if a feed has not delivered in time a write that the
	// candidate knows of.
	ErrStale = errors.New("changefeed: feed did not deliver a known write in time")
	// ErrNotEnded is returned by [RestartElection] if the election has not ended.
	ErrNotEnded = errors.New("changefeed: election has not ended")
	// ErrStepDown is the error of a leadership that has ended because the leader has handed over to
	// another candidate, or because another candidate has claimed the record.
	ErrStepDown = errors.New("changefeed: leadership is transferred to another candidate")
	// ErrFeedLost is the error of a leadership that has ended because the leader's feed has failed, and no feed
	// has worked again within the lease. The message contains the feed's last error.
	ErrFeedLost = errors.New("changefeed: feed of the leader has failed")
)

// startLimit is how long a store may take to start, or to create missing objects.
const startLimit = 10 * time.Second

// NewElection creates a candidate for the election whose record is kept by store. It starts
// the store, which may be shared and may have been started before, and creates whatever is
// missing, unless [WithoutCreate] is given. It returns within ten seconds. The caller
// remains the owner of store, and closes it after the candidacies are over.
//
// Errors: [leaderelection.ErrInvalid] if store is nil or an option is invalid,
// [leaderelection.ErrNoElection], [ErrUnsuitable], [ErrClosed] and
// [leaderelection.ErrConnClosed]. Any other error of the store, for example that its server
// refuses connections or has not answered in time, wraps [leaderelection.ErrUnreachable]:
// NewElection can be called again. If the election has ended, ElectLeader returns the error.
func NewElection(store Store, opts ...Option) (e *Election, err error) {
	err = withStartedStore(store, opts, func(ctx context.Context, o *options) error {
		if err := createRecord(ctx, o, store); err != nil {
			return err
		}
		e = newElection(o, store)
		return nil
	})
	return e, err
}

func newElection(o *options, store Store) *Election {
	e := &Election{
		opts: o, store: store, written: make(chan Record), requested: make(chan struct{}),
		candidacy: candidacy.New(o.ctx, o.log.With("candidate", o.cfg.ID)),
	}
	e.candidacy.SetID(o.cfg.ID)
	e.requestResign = sync.OnceFunc(func() { close(e.requested) })
	return e
}

// withStartedStore starts the store and then calls f. The context of both calls ends after startLimit.
func withStartedStore(store Store, opts []Option, f func(ctx context.Context, o *options) error) error {
	o, err := newOptions(opts)
	if err != nil {
		return err
	}
	if store == nil {
		return fmt.Errorf("changefeed: the store is nil: %w", leaderelection.ErrInvalid)
	}
	ctx, cancel := context.WithTimeoutCause(o.ctx, startLimit, fmt.Errorf("%w within %v", leaderelection.ErrUnreachable, startLimit))
	defer cancel()
	if err := store.Start(ctx); err != nil {
		return o.wrapError(ctx, "start the store", err)
	}
	return f(ctx, o)
}

// unreachable is the error of a store that has not executed a request, where another attempt can succeed. It
// wraps [leaderelection.ErrUnreachable] without changing the text of the error.
type unreachable struct{ error }

func (unreachable) Is(target error) bool { return target == leaderelection.ErrUnreachable }
func (e unreachable) Unwrap() error      { return e.error }

// createRecord creates the record if it does not exist, unless WithoutCreate is given, and checks
// that elections can use it.
func createRecord(ctx context.Context, o *options, store Store) error {
	if o.create {
		if err := store.Create(ctx, o.unclaimedRecord()); err != nil {
			return o.wrapError(ctx, "create the record", err)
		}
	}
	r, err := store.Read(ctx)
	if err == nil {
		err = validateRecord(r)
	}
	if o.create && errors.Is(err, ErrNoRecord) {
		return nil // The record was deleted after Create. ElectLeader creates it again.
	}
	return o.wrapError(ctx, "read the record", err)
}

// unclaimedRecord returns the first record of an election. An earlier record may have been lost, with all
// candidates that knew its term. The new tokens must be greater than those of the lost record, so the term
// starts at the wall clock's time.
func (o *options) unclaimedRecord() Record {
	return Record{Epoch: protocol.Epoch(0, randomID()), Term: protocol.FirstTerm(0, o.wallTime()), Seq: 1, TTL: o.cfg.Lease}
}

// wallTime returns the time by the wall clock as a term: the milliseconds since the Unix epoch.
func (o *options) wallTime() uint64 { return termOf(o.clock.Now()) }

// termOf returns t in milliseconds since the Unix epoch.
func termOf(t time.Time) uint64 { return uint64(max(0, t.UnixMilli())) }

// wrapError adds the operation to an error, and wraps it with the corresponding error of package
// leaderelection.
func (o *options) wrapError(ctx context.Context, operation string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrNoRecord) && !o.create:
		err = fmt.Errorf("%w (%w); create the record or omit WithoutCreate", leaderelection.ErrNoElection, err)
	case errors.Is(err, ErrNoRecord):
		err = fmt.Errorf("%w (%w); the store is configured not to create it", leaderelection.ErrNoElection, err)
	case ctx.Err() != nil && !errors.Is(err, ErrUnsuitable):
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	case !errors.Is(err, ErrUnsuitable) && !errors.Is(err, ErrClosed) && !errors.Is(err, leaderelection.ErrConnClosed):
		err = unreachable{err} // By the contract of stores, such an error is not permanent.
	}
	return fmt.Errorf("changefeed: %s: %w", operation, err)
}

// validateRecord returns an error if no candidate can have written r.
func validateRecord(r Record) error {
	problem := ""
	switch {
	case r.Version == "":
		problem = "no version"
	case r.Epoch == "":
		problem = "no epoch"
	case r.Seq == 0:
		problem = "no seq"
	case r.TTL < 0 || r.TTL > maxTTL:
		problem = fmt.Sprintf("a TTL of %v", r.TTL)
	case r.Term > protocol.MaxTerm:
		problem = fmt.Sprintf("term %d", r.Term)
	default:
		return nil
	}
	return fmt.Errorf("%w: the record has %s: it is damaged or not the record of an election", ErrUnsuitable, problem)
}

// ID returns the candidate's ID, which [WithID] sets and which is random by default. The ID never
// changes, so it can be passed to [Transfer] at any time.
func (e *Election) ID() string { return e.opts.cfg.ID }

// Status implements [leaderelection.Candidate]. NowFollowing is the leader. Candidates are not ordered, so Next
// is true only while the record names this candidate's ID as the target of a [Transfer]. FormerErr is
// [leaderelection.ErrResigned] if the last leader has released the record, for whatever reason, and this candidate
// has observed a heartbeat of that leadership. It is [leaderelection.ErrLeaseExpired] if the record still contained a
// leader when this candidate claimed it. The Role is never Suspended: a leadership whose lease has expired is over,
// and the candidate contends for the next one, with a new token.
func (e *Election) Status() <-chan leaderelection.Status { return e.candidacy.Status() }

// Current implements [leaderelection.Candidate].
func (e *Election) Current() leaderelection.Status {
	s := e.candidacy.Current()
	if s.Role == leaderelection.Suspended {
		s.Role = leaderelection.Follower
	}
	return s
}

// Events implements [leaderelection.Candidate]. [event.HandOver], [event.Suspended] and
// [event.Resumed] are not reported. The error of [event.WatchFailed] is [ErrStale] if the feed
// works but does not deliver a known write. The error of [event.RequestRejected] wraps
// [ErrUnsuitable].
func (e *Election) Events() <-chan event.Event { return e.candidacy.Events() }

// Changes starts a feed of changes of data other than the record, from [Store.Changes]: of the table
// (RethinkDB), collection (MongoDB), channel (PostgreSQL and Redis) or bucket (NATS) with the given name
// in the store's database, or, if the name is empty, of the store's own table, collection, channel or
// bucket. If the store does not support such feeds, the error wraps [errors.ErrUnsupported].
//
// The returned loop delivers each change from the return of Changes on, so a program can read the data
// between the call and the loop. It ends after ctx is done; otherwise its last element is an error without
// a change, after which changes may have been missed: read the data, and call Changes again. The feed ends
// with the loop, which can run once, or when ctx is done.
func (e *Election) Changes(ctx context.Context, place string) (iter.Seq2[any, error], error) {
	feed, err := e.store.Changes(ctx, place)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = feed.Close() })
	return func(yield func(any, error) bool) {
		defer feed.Close()
		defer stop()
		for {
			change, err := feed.Next(ctx)
			if ctx.Err() != nil || !yield(change, err) || err != nil {
				return
			}
		}
	}, nil
}

// ElectLeader implements [leaderelection.Candidate]. It blocks until the candidacy is over
// and returns the error of the final status, or nil after Resign or when the context of
// [WithContext] is done. The error wraps [leaderelection.ErrConnClosed] if the store
// ([ErrClosed]) or its connection was closed, and [ErrUnsuitable] if the record has the
// greatest possible term. Other errors of the store do not end a candidacy: failed requests
// are retried, at most once per heartbeat, and reported by [Election.Events].
func (e *Election) ElectLeader() error {
	return e.candidacy.Run(func(ctx context.Context) error {
		e.started.Store(true)
		r := newRunner(ctx, e)
		go r.run()
		<-e.candidacy.Done()
		limit.Await(r.done, time.Now().Add(limit.Confirm)) // A store that does not answer must not delay the return.
		return nil                                         // The runner has ended the candidacy, with its error.
	})
}

// ResignRequested returns a channel that is closed when a [Transfer] to another candidate is requested while this
// candidate leads. Once ResignRequested was called, such a request does not end the leadership: the program should end
// its work and then call Resign, so that the other candidate can lead; package elector does so. If it is never called,
// the leadership ends at once. The channel is not closed when the candidacy ends, so also wait until it is over.
func (e *Election) ResignRequested() <-chan struct{} {
	e.listens.Store(true)
	return e.requested
}

// Resign implements [leaderelection.Candidate]. If this candidate is the leader, Resign
// closes Leadership.Done and then releases the record, so that another candidate can become
// leader immediately. If the store does not answer, Resign returns
// [leaderelection.ErrUnconfirmed], also when it is called again, and the release is retried in
// the background for two election timeouts, after which other candidates do not need it any more.
func (e *Election) Resign() error {
	e.candidacy.Stop(leaderelection.ErrResigned)
	<-e.candidacy.Done()
	if !e.mayHold.Load() {
		return nil
	}
	return fmt.Errorf("changefeed: resign: %w: the record may still name %q as leader", leaderelection.ErrUnconfirmed, e.ID())
}
