package changefeed

import (
	"context"
	"errors"
	"time"
)

// Record is the one record of an election. A store keeps all of it but Version, which
// is the store's own, and Time, which the store sets with each write.
type Record struct {
	// Epoch is random and made with the record: one that was lost and made anew is
	// not mistaken for the old one.
	Epoch string
	// Leader is the ID of the candidate that leads, "" after a release and before the
	// first leader.
	Leader string
	// Session is random and made by each candidate: two with one ID cannot both lead.
	Session string
	// Nominee is the ID of the candidate that is to lead next, "" for any.
	Nominee string
	// Term grows by at least 1 with each leadership: the fencing token. Before the first
	// leadership it is the wall clock's number, in milliseconds since 1970. It is 2^53 - 1
	// at most.
	Term uint64
	// Seq grows by 1 with each write, and orders what is seen of a record.
	Seq uint64
	// TTL is how long the leader acts on a heartbeat, counted from before it was sent.
	// 0 says that nobody leads.
	TTL time.Duration
	// Ended says that the election is over for everybody.
	Ended bool
	// Time is when the record was written, by the store's clock; zero where the store
	// has none. It is for people: nothing is decided by it.
	Time time.Time
	// Version names this state of the record for Heartbeat. Only the store reads it.
	// No other state has the same, not even one of a record that was made after this
	// one was lost: a store whose versions begin anew then compares Epoch as well.
	Version string
}

// Store keeps the record of one election. Users may write their own; package
// storetest says whether it keeps the contract.
//
// At most one candidate leads if Heartbeat is a linearizable compare-and-set and what
// it has acknowledged is not lost. What Read and the feed tell may be late, repeated or
// out of order, and states may be left out: that costs time and never safety. For
// somebody to lead after a failure, every feed that is open must in the end tell of
// what was written last, or return an error.
//
// Methods may be called from several goroutines at once. They return soon after ctx is
// done, with its error or one that wraps it; whether a write was, or still will be,
// carried out is unknown then. What the caller passed in to make the store, such as a
// connection, is neither closed nor changed.
type Store interface {
	// Start checks that the store can be used: that the table, bucket or key space is
	// there or may be made (Create), that the feed will work. It changes nothing. What
	// can never work is an error that wraps [ErrUnsuitable].
	Start(ctx context.Context) error

	// Create makes what is missing, and puts blank there if there is no record. It
	// never touches a record, and may be called by any number of processes at once.
	// A store that was told to make nothing returns [ErrNoRecord] where something is
	// missing besides the record itself.
	Create(ctx context.Context, blank Record) error

	// Heartbeat replaces the record by next if its Version is still prev's, in one
	// step, durably, and returns what it has written, with Time and Version. The
	// error is [ErrConflict] where the record is another by now; [ErrNoRecord] where
	// there is none. Anything else leaves the outcome unknown, unless it wraps
	// [ErrUnsuitable]. It writes even when next differs from prev in nothing but Seq.
	Heartbeat(ctx context.Context, prev, next Record) (Record, error)

	// Read returns the record, or ErrNoRecord.
	Read(ctx context.Context) (Record, error)

	// Subscribe opens a feed.
	Subscribe(ctx context.Context) (Feed, error)

	// Close gives up what the store has taken for itself. Everything else fails
	// with [ErrClosed] from then on, feeds included. It may be repeated, and returns
	// within two seconds whether or not a server answers.
	Close() error
}

// Feed tells of a record's changes.
type Feed interface {
	// Next waits for an event. The first, soon after Subscribe, is what there is at
	// that time. The error says that the feed has ended, for any reason but ctx;
	// it is returned at once, before anything is cleaned up. One goroutine calls it.
	// When ctx ends first the feed is still good, and no event is lost.
	Next(ctx context.Context) (Event, error)

	// Close ends the feed, and a Next under way, within two seconds. It may be
	// repeated, and called from any goroutine.
	Close() error
}

// Event is what a feed tells.
type Event struct {
	// Record is the record as it was at some time after the event before.
	Record Record
	// Missing says that there is no record.
	Missing bool
	// Hint says that the record was not read: it came by a message that clients without access
	// to the record could have sent as well. A candidate takes a hint for a heartbeat of the
	// leader, or else reads the record; it neither ends an election, nor follows, nor claims
	// because of a hint. Feeds that deliver the record itself leave it false.
	Hint bool
}

// Watcher is a store that also tells of changes of other data, in the same table,
// collection, bucket or key space.
type Watcher interface {
	// Watch opens a feed of changes from now on.
	Watch(ctx context.Context) (Changes, error)
}

// PlaceWatcher is a store that also tells of changes in any other place of its database.
type PlaceWatcher interface {
	// WatchPlace opens a feed of changes, from now on, of the table, collection or channel
	// with this name. The error wraps [leaderelection.ErrInvalidOption] for a name that
	// cannot be one. The feed ends with the store.
	WatchPlace(ctx context.Context, name string) (Changes, error)
}

// Changes is a feed of changes of other data. Its methods keep to what [Feed] says of
// its own.
type Changes interface {
	// Next returns a change, whose type the store's package names.
	Next(ctx context.Context) (any, error)
	Close() error
}

// What a store returns, for errors.Is.
var (
	// ErrConflict: the record is not the one that was to be replaced.
	ErrConflict = errors.New("changefeed: the record was changed by somebody else")
	// ErrNoRecord: there is no record, or nothing to keep it in.
	ErrNoRecord = errors.New("changefeed: there is no record")
	// ErrClosed: the store was closed. It ends candidacies, and so does an error that
	// wraps [leaderelection.ErrConnClosed]: the connection that the store was made with
	// was closed.
	ErrClosed = errors.New("changefeed: the store is closed")
	// ErrUnsuitable: the store cannot serve elections as it is: no permission, no
	// feed, a record that has another shape. NewElection fails with it. A candidacy that
	// has begun reports it (StoreError, SubscriptionError, HeartbeatError) and repeats
	// the request.
	ErrUnsuitable = errors.New("changefeed: the store cannot be used")
)
