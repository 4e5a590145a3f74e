package protocol

// Op is a request to the store.
type Op uint8

// The requests to a store. All but Read and Create are compare-and-set writes.
const (
	None      Op = iota
	Claim        // Claim makes this candidate the leader.
	Heartbeat    // Heartbeat renews the lease of the leader.
	Release      // Release the record, or write it unchanged so that an unresolved claim fails.
	RaiseTerm    // Increase the term of an unclaimed record to the greatest known term.
	Read
	Create
)

// String returns the name of the request in log messages.
func (o Op) String() string {
	return [...]string{"none", "claim", "heartbeat", "release", "raise term", "read", "create"}[o]
}

// ActionKind is the kind of an [Action].
type ActionKind uint8

// The kinds of actions that the protocol outputs.
const (
	Send                 ActionKind = iota // Send the request Op; if it is a write, Record replaces Prev.
	Subscribe                              // Open a feed, which replaces the current one.
	Lead                                   // Start a leadership with Term.
	Extend                                 // Extend the lease, which is now measured from Sent.
	Demote                                 // End the leadership, because of Reason.
	ReportLeader                           // Report the new leader, Leader, with Term.
	ReportFeed                             // Report that the feed works.
	ReportFeedFailure                      // Report that the feed has failed, or, if Reason is Stale, delivers too late.
	ReportHeartbeatError                   // Report that a heartbeat has failed.
	ReportHeartbeat                        // Report a heartbeat of Leader with Term.
	RequestResign                          // Tell the program that another candidate is to lead.
	Finish                                 // End the candidacy, because of Reason.
)

// Reason is the reason of an action.
type Reason uint8

// The reasons why the protocol outputs an action.
const (
	Failed     Reason = iota // The error of the input is the reason.
	Expired                  // The lease has expired.
	Superseded               // The record names another leader.
	RecordLost               // The record was deleted, and possibly created again.
	FeedLost                 // No feed has worked for the time of a lease.
	HandedOver               // The record contains another candidate as transfer target.
	Resigned                 // The candidate resigns.
	Ended                    // The election has ended.
	Stale                    // The feed has not delivered a known write in time.
	Exhausted                // The next term would be greater than MaxTerm.
)

// Action is an action that the caller of Step must perform. Its Kind determines which fields are set.
type Action struct {
	Kind   ActionKind
	Op     Op
	Prev   Record
	Record Record
	Term   uint64
	Leader string
	Sent   Time
	Reason Reason
}
