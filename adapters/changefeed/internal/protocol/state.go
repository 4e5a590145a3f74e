// Package protocol is the algorithm of a candidate that lives by a changefeed, as a pure
// function: state, input and time go in, the next state and what is to be done come
// out. It asks no clock, draws no number and starts no goroutine. The runtime carries
// out what it says; the model checker beside it tries every order of events.
package protocol

import "time"

// Time is a candidate's own clock: time since an instant of its choice. Those of two
// candidates are never compared.
type Time = time.Duration

// Record has the fields of changefeed.Record, so that one is converted into the other.
type Record struct {
	Epoch   string
	Leader  string
	Session string
	Nominee string
	Term    uint64
	Seq     uint64
	TTL     time.Duration
	Ended   bool
	Time    time.Time
	Version string
}

// Released reports whether the last leader has given the record up: whoever may lead next
// need not wait. A blank record, or one made anew, is not released.
func (r Record) Released() bool { return r.Leader == "" && r.Session == "" && r.Term > 0 && r.TTL == 0 }

// Config is what does not change. Package changefeed checks it.
type Config struct {
	ID      string
	Session string
	// Heartbeat is H: from the sending of one to that of the next.
	Heartbeat time.Duration
	// ElectionMin and ElectionMax bound the wait for a silent leader.
	ElectionMin, ElectionMax time.Duration
	// Lease is D: how long an acknowledged heartbeat counts, from before it was sent.
	Lease time.Duration
	// Guard is how long before the end of the lease a leader stops.
	Guard time.Duration
	// Kappa is by how much one clock may run faster than another.
	Kappa float64
	// KeepLeading has a leader go on without a feed.
	KeepLeading bool
	// Create has a record that is missing made anew.
	Create bool
}

// Op is a request to the store; there is one at a time.
type Op uint8

// The requests. All but Read and Create are heartbeats, that is: compare-and-set.
const (
	None    Op = iota
	Claim      // become the leader
	Beat       // stay the leader
	Release    // give the record up, or make sure that an earlier claim comes to nothing
	Raise      // tell a record that was made anew of the terms that were used before
	Read       // find out what there is
	Create     // make the record
)

func (o Op) String() string {
	return [...]string{"none", "claim", "heartbeat", "release", "raise", "read", "create"}[o]
}

// State is all that a candidate remembers. The zero State is that of one which starts.
type State struct {
	// The record, as far as it is known.
	Known   bool   // Cur is the newest that was seen
	Cur     Record //
	ClaimAt Time   // when Cur counts as abandoned, unless something newer is seen
	Hold    Time   // no claim before: the store has forgotten writes, and maybe a leader
	Lost    bool   // the record was seen to be missing
	Doubt   bool   // there may be something newer: read before the next write
	Hinted  bool   // Cur is what a hint said, not what was read: read it before a claim
	MaxTerm uint64 // the greatest that was ever seen
	Told    uint64 // the term of the leader that was told of last
	Epoch   string // the last that was seen, also when the record is lost

	// The feed.
	Open        bool   // there is one, or one is being opened
	Feed        bool   // it has told of something
	FeedFails   uint8  // since it has last
	SubscribeAt Time   // when to open one
	FedSeq      uint64 // what it has told last
	FedEpoch    string //
	Owed        uint64 // the Seq that the feed has to come to,
	OwedEpoch   string //
	OwedBy      Time   // and until when

	// The request under way.
	Op        Op
	OpTerm    uint64
	OpSeq     uint64 // of what it is to replace
	OpEpoch   string
	Sent      Time  // before it was sent
	Fails     uint8 // since the last that succeeded
	NotBefore Time  // when to send the next

	// A claim or heartbeat whose answer was lost, and which may still be carried out,
	// but only on what had this Seq.
	Loose      bool
	LooseSeq   uint64
	LooseEpoch string

	// Leadership.
	Leading  bool
	Term     uint64
	Deadline Time // the end of the lease
	Beaten   Time // when the newest acknowledged heartbeat was sent
	Wrote    bool // a claim was sent, ever

	Leaving bool // by Resign
	Over    bool // nothing happens any more

	// Wake is when to call Step next, with a Tick, if nothing happens before.
	Wake Time
}

// Never is no time.
const Never = Time(1<<63 - 1)
