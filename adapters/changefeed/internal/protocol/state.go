// Package protocol implements the algorithm of a candidate as a pure function: [Step] takes a
// state, an input and the time, and returns the next state and the actions to perform. It reads no
// clock, uses no random numbers and starts no goroutines. The runtime performs the actions. The
// model checker in the tests of this package calls the same function in every order of inputs.
//
// The rules R1 to R10 in the comments are those of docs/changefeed.md.
package protocol

import "time"

// Time is a time by a candidate's own clock, as the duration since an instant that the candidate chooses. Times of
// different candidates are never compared.
type Time = time.Duration

// Never is later than any other Time.
const Never = Time(1<<63 - 1)

// Config is the configuration of a candidate. Package changefeed validates it.
type Config struct {
	ID      string
	Session string
	// Heartbeat is the time from sending one heartbeat to sending the next, H in docs/changefeed.md.
	Heartbeat time.Duration
	// ElectionMin and ElectionMax bound the time for which a candidate waits for another heartbeat before it
	// claims the record.
	ElectionMin, ElectionMax time.Duration
	// Lease is the time for which an acknowledged heartbeat confirms the leadership, D in
	// docs/changefeed.md. It is measured from before the heartbeat was sent.
	Lease time.Duration
	// Guard is the safety margin: a leader stops so long before its lease expires.
	Guard time.Duration
	// Kappa is the factor by which one clock may be faster than another.
	Kappa float64
	// KeepLeading lets a leader continue for any time while its feed is broken.
	KeepLeading bool
	// Create makes the candidate create a missing record.
	Create bool
}

// State is the state of a candidate. The zero State belongs to a candidate that has just started.
type State struct {
	// Current is the newest observed record, if Known is set. Invariant: !Known || !Missing.
	Known   bool
	Current Record
	// TTL is how long the lease of the leader of Current lasts, or longer, because a TTL can be edited by hand.
	// TTLRepeated reports whether two records in a row contained it.
	TTL         time.Duration
	TTLRepeated bool
	// ClaimAt is when the candidate may claim a record that another candidate holds, if it observes no newer record until then.
	ClaimAt Time
	// HoldUntil is the time before which the candidate claims nothing. It is set when the store has lost writes,
	// because a leader may rely on a lost heartbeat.
	HoldUntil Time
	// Missing reports whether the record did not exist when the candidate last observed it.
	Missing bool
	// MustRead reports whether there may be a newer record: the candidate must read the record
	// before it writes.
	MustRead bool
	// Hinted reports whether Current is from a hint: the candidate must read the record before it
	// claims it.
	Hinted bool
	// GreatestTerm is the greatest term that the candidate has observed.
	GreatestTerm uint64
	// ReportedTerm is the term of the last leader that the action ReportLeader has reported.
	ReportedTerm uint64
	// Epoch is the epoch of the last observed record, also while the record is missing.
	Epoch string

	// FeedOpen reports whether a feed is open or being opened, and FeedWorks whether it has
	// delivered an event.
	FeedOpen, FeedWorks bool
	// FeedDeadline is when a leader stops if its feed has failed and no feed works until then.
	FeedDeadline Time
	// FeedFailures is the number of failures since a feed delivered an event, at most maxFailures.
	FeedFailures uint8
	// SubscribeAt is when to open the next feed, if none is open.
	SubscribeAt Time
	// FeedSeq and FeedEpoch are the Seq and the Epoch of the last record that the feed has delivered.
	FeedSeq   uint64
	FeedEpoch string
	// If ExpectedSeq is not 0, the feed is replaced unless it delivers, until ExpectedBy, the record with this Seq
	// in ExpectedEpoch, or a later one.
	ExpectedSeq   uint64
	ExpectedEpoch string
	ExpectedBy    Time

	// Op is the request in flight. OpTerm is the term that it writes, and OpSeq and OpEpoch are the Seq
	// and the Epoch of the record that it replaces.
	Op      Op
	OpTerm  uint64
	OpSeq   uint64
	OpEpoch string
	// SentAt is the time before Op was sent.
	SentAt Time
	// Failures is the number of failures since the last success, at most maxFailures.
	Failures uint8
	// RetryAt is the time before which no request is sent, because earlier ones have failed.
	RetryAt Time

	// Unresolved reports whether the response to a claim or heartbeat was lost that may still be
	// executed. It can only replace the record with UnresolvedSeq in UnresolvedEpoch.
	Unresolved      bool
	UnresolvedSeq   uint64
	UnresolvedEpoch string

	// Leading reports whether the candidate is the leader, with Term, until Deadline.
	Leading  bool
	Term     uint64
	Deadline Time
	// RenewedAt is the time before the newest acknowledged claim or heartbeat was sent. The next heartbeat is due one
	// interval later.
	RenewedAt Time
	// Claimed reports whether the candidate has ever sent a claim.
	Claimed bool
	// LostClaims is the number of claims that were not acknowledged and of leases that have
	// expired since the last acknowledged heartbeat, at most maxLostClaims.
	LostClaims uint8

	// ReleaseAt is the time before which the candidate does not release the record, unless it resigns: until then,
	// its program may still be stopping.
	ReleaseAt Time

	// Leaving reports whether the candidate resigns, and Over whether its candidacy is over.
	Leaving, Over bool

	// WakeAt is when the caller must call Step with a Tick, unless it calls Step with another input before.
	WakeAt Time
}

// Ready reports whether the candidate would claim the record now if it were released for it, and probably
// lead: its feed works, its last request has succeeded, and it does not yield.
func (s State) Ready() bool {
	return s.Known && s.FeedWorks && s.Failures == 0 && s.LostClaims < maxLostClaims && !s.Leaving && !s.Over
}

// MayHold reports whether the record may contain the candidate as leader, or may contain it later
// because of a request that was sent.
func (s State) MayHold(cfg *Config) bool {
	if s.Over {
		return false
	}
	return !(&machine{cfg: cfg, State: s}).hasLeft()
}
