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
	LeaseExpired                  // The lease has expired by another clock.
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
	// Record is set for Kind Observed, and for Kind Responded with Outcome OK.
	Record Record
	// ByFeed reports whether the feed has delivered an input of kind Observed or Missed.
	ByFeed bool
	// Hint reports whether an observed record was received in a message that any client could
	// have sent.
	Hint bool
	// Outcome is the outcome of the request, if Kind is Responded.
	Outcome Outcome
	// Late reports whether, by another clock, the request was sent more than a lease ago.
	Late bool
	// Listens reports whether the program ends its work and then resigns when it is requested to hand over.
	Listens bool
	// Rand is a random number in [0, 1), which differs for each input.
	Rand float64
	// Wall is the time by the wall clock, as a number. Only the terms of unclaimed records depend
	// on it.
	Wall uint64
}
