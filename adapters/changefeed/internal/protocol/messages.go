package protocol

// Kind says what an Input tells.
type Kind uint8

// What can happen.
const (
	Tick     Kind = iota // time has passed
	Observed             // a record was seen
	Missing              // there was seen to be no record
	Done                 // the request under way has ended
	FeedDown             // the feed has ended, or could not be opened
	Lapsed               // another clock says that the lease is over
	Resign               // the candidate is to leave
)

// Outcome is how a request has ended.
type Outcome uint8

// The outcomes. After Unknown a write was, or still will be, carried out, or never.
const (
	OK Outcome = iota
	Conflict
	NoRecord
	Unknown
)

// Input is one thing that has happened.
type Input struct {
	Kind    Kind
	Record  Record // Observed, and Done with OK
	ByFeed  bool   // Observed and Missing: the feed tells
	Hint    bool   // Observed: by a message that anybody could have sent
	Outcome Outcome
	// Late says of a request that is Done that another clock holds it to be older than
	// a lease.
	Late bool
	// Rand is in [0, 1), and another each time.
	Rand float64
	// Wall is a number that grows with the wall clock. Nothing but the terms of records
	// that are made anew depends on it.
	Wall uint64
}

// Do says what an Action asks for.
type Do uint8

// What is to be done, in the order of the actions.
const (
	Send           Do = iota // send Op; Record is to replace Prev
	Subscribe                // open a feed, in place of the one there is
	Lead                     // leadership begins, with Term
	Extend                   // the lease has a new end: it counts from Sent
	Demote                   // leadership has ended, for Reason
	NewLeader                // tell that Leader leads, with Term
	FeedStarted              // tell that the feed has told of something
	FeedFailed               // tell that it has ended, or is behind (Reason is Stale)
	HeartbeatError           // tell that a heartbeat has not succeeded
	Alive                    // tell that Leader, with Term, has written a heartbeat
	Finish                   // the candidacy is over, for Reason
)

// Reason is why something has ended.
type Reason uint8

// The reasons.
const (
	Failed     Reason = iota // what was reported
	Expired                  // the lease is over
	Superseded               // the record shows another leader
	RecordLost               // the record was deleted, and possibly created again
	FeedLost                 // without a feed it does not lead
	HandedOver               // to a nominee
	Resigned
	Ended     // the election
	Stale     // the feed did not tell of what there was
	Exhausted // there is no greater term
)

// Action is one thing to do.
type Action struct {
	Do     Do
	Op     Op
	Prev   Record
	Record Record
	Term   uint64
	Leader string
	Sent   Time
	Reason Reason
}
