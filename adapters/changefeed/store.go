package changefeed

import (
	"context"
	"errors"
	"time"
)

// Record is the record of an election. A store keeps all its fields except Version, which
// the store maintains, and Time, which the store sets with each write.
type Record struct {
	// Epoch is a random text that the creator of the record chooses. It distinguishes a record
	// from a lost record that it replaces. Epoch and Session have fewer than 100 bytes.
	Epoch string
	// Leader is the ID of the leader, of at most [MaxID] bytes. It is "" after a release and
	// before the first leadership.
	Leader string
	// Session is a random text that each candidate chooses. It distinguishes candidates with the
	// same ID, of which only one can be leader.
	Session string
	// Nominee is the ID of the candidate that should become the next leader, or "" for any
	// candidate. It has at most [MaxID] bytes.
	Nominee string
	// Term is the fencing token. It increases by at least 1 with each leadership. Before
	// the first leadership it is the wall clock's time in milliseconds since the Unix
	// epoch. It is at most 2^53 - 1.
	Term uint64
	// Seq increases by 1 with each write, and orders the observed states of a record.
	Seq uint64
	// TTL is the time for which the leader relies on a heartbeat, measured from before it
	// was sent. 0 means that there is no leader.
	TTL time.Duration
	// Ended reports whether the election has ended for all candidates.
	Ended bool
	// Time is when the record was written, by the store's clock, or zero if the store has
	// no clock. It is informational: no decision depends on it.
	Time time.Time
	// Version identifies this state of the record for Heartbeat. Only the store interprets
	// it. No other state has the same version, not even of a record that was created after
	// this one was lost: a store whose versions can restart must compare Epoch as well.
	Version string
}

// Store keeps the record of one election. Programs may implement it; package storetest
// tests whether an implementation conforms to the contract.
//
// At most one candidate is the leader if Heartbeat is a linearizable compare-and-set and
// acknowledged writes are not lost. The results of Read and the feed may be late, repeated
// or out of order, and may skip states: that delays elections but does not affect safety.
// For a leader to be elected after a failure, every open feed must eventually deliver the
// last write or return an error.
//
// Methods must be safe for concurrent use. They must return soon after ctx is done, with
// its error or an error that wraps it; it is unknown then whether a write was or will be
// applied. A store must not close or change objects that it was created with, such as a
// connection.
type Store interface {
	// Start checks that the store can be used: that the table, bucket or key space exists
	// or can be created by Create, and that feeds will work. It changes nothing. A
	// permanent failure is an error that wraps [ErrUnsuitable].
	Start(ctx context.Context) error

	// Create creates whatever is missing, and writes blank if the record does not exist. It must
	// not change an existing record, and may be called by any number of processes at the
	// same time. A store that was configured not to create anything returns [ErrNoRecord]
	// if anything other than the record is missing.
	Create(ctx context.Context, blank Record) error

	// Heartbeat atomically and durably replaces the record by next if the record still has the
	// Version of prev, and returns the written record with Time and Version. It returns
	// [ErrConflict] if the record has changed, and [ErrNoRecord] if the record does not exist.
	// After any other error the outcome is unknown, unless the error wraps [ErrUnsuitable]. It
	// must write even if next differs from prev only in Seq.
	Heartbeat(ctx context.Context, prev, next Record) (Record, error)

	// Read returns the record, or [ErrNoRecord].
	Read(ctx context.Context) (Record, error)

	// Subscribe opens a feed. [Feeds] implements feeds for stores.
	Subscribe(ctx context.Context) (Feed, error)

	// Changes opens a feed of changes of other data, starting now: of the table, collection,
	// channel or bucket with the given name in the store's database, or, if the name is empty, of
	// the store's own table, collection, channel or bucket. Records of elections are omitted. The
	// error wraps [errors.ErrUnsupported] if the store cannot deliver such changes.
	Changes(ctx context.Context, place string) (Changes, error)

	// Close releases the resources of the store. After that, the other methods of the store
	// and Next of its feeds return [ErrClosed]; Changes of [NoChanges] still returns
	// [errors.ErrUnsupported]. Close may be called repeatedly, and returns within two
	// seconds even if the server does not answer.
	Close() error
}

// Feed delivers the changes of a record.
type Feed interface {
	// Next blocks until there is an event and returns it. The first event, soon after
	// Subscribe, is the current record. An error other than that of ctx means that the feed
	// has ended; it is returned immediately, before any cleanup. If ctx is done first, the
	// feed remains usable and no event is lost. Next is called by one goroutine at a time.
	Next(ctx context.Context) (Event, error)

	// Close ends the feed and a pending Next, within two seconds. It may be called
	// repeatedly, and from any goroutine.
	Close() error
}

// Event is an element of a feed.
type Event struct {
	// Record is the record as it was at some time after the previous event.
	Record Record
	// Missing reports that the record does not exist.
	Missing bool
	// Hint reports that the record was not read, but received in a message that clients
	// without access to the record could have sent as well. A candidate accepts a hint as a
	// heartbeat of the current leader, and reads the record in all other cases; it does not
	// end an election, follow another leader or claim the record because of a hint. Feeds
	// that deliver the record itself do not set Hint.
	Hint bool
}

// Changes is a feed of changes of other data. Its methods follow the contract of [Feed].
type Changes interface {
	// Next blocks until there is a change and returns it. The store's package documents the types
	// of changes.
	Next(ctx context.Context) (any, error)
	// Close ends the feed.
	Close() error
}

// Errors that stores return, to be tested with errors.Is.
var (
	// ErrConflict is returned by Heartbeat if the record has changed.
	ErrConflict = errors.New("record was changed by another client")
	// ErrNoRecord is returned if the record, or whatever should contain it, does not exist.
	ErrNoRecord = errors.New("record does not exist")
	// ErrClosed is returned after the store was closed. It ends candidacies, as does an
	// error that wraps [leaderelection.ErrConnClosed], which a store returns if the
	// connection that it was created with was closed.
	ErrClosed = errors.New("store is closed")
	// ErrUnsuitable is returned if the store cannot serve elections in its current state, for
	// instance because of a missing permission, a missing feature, or a record in another format.
	// NewElection returns the error. A running candidacy reports the error
	// (event.RequestRejected, event.WatchFailed, event.Checked) and retries the request.
	ErrUnsuitable = errors.New("store cannot be used")
)
