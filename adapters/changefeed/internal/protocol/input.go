package protocol

// InputKind is the kind of an [Input].
type InputKind uint8

// The kinds of inputs of the protocol.
const (
	Tick         InputKind = iota // Time has passed.
	Observed                      // Record was read or delivered.
	Missed                        // The record does not exist.
	Responded                     // The request in flight has ended.
	FeedDown                      // The feed has ended, or could not be opened.
	LeaseExpired                  // The lease has expired by the monotonic or the wall clock.
	Resign                        // The candidate must leave.
)

// Outcome is the result of a request.
type Outcome uint8

// The outcomes of requests to a store. After Unknown a write may have been executed, may be executed later,
// or may never be executed.
const (
	OK Outcome = iota
	Conflict
	NoRecord
	Unknown
)

// Input is an event that a candidate handles.
type Input struct {
	Kind InputKind
	// Record is the observed record for Kind Observed, and the result of the request for Kind Responded with
	// Outcome OK.
	Record Record
	// ByFeed reports whether the input comes from the feed. It applies to the kinds Observed and Missed.
	ByFeed bool
	// Hint reports whether an observed record was received in a message that any client could
	// have sent.
	Hint bool
	// Outcome is the outcome of the request, if Kind is Responded.
	Outcome Outcome
	// Late reports whether, by the monotonic or the wall clock, the request was sent more than a lease ago.
	Late bool
	// Listens reports whether the program reacts to a request to hand over by ending its work and resigning.
	Listens bool
	// Rand is a random number in [0, 1). Each input has a different one.
	Rand float64
	// Wall is the time by the wall clock, as a number. Only the terms of unclaimed records depend
	// on it.
	Wall uint64
}
