// Package protection names the rules of the raft log that the simulation can switch off, to show
// that it would find their absence. Programs cannot: without the build tag raftlog_controls, a Set
// has no member, and the compiler removes the questions that are asked of it.
package protection

// A Rule is one protection.
type Rule uint

const (
	VoteHold      Rule = iota // a peer that has just started does not vote
	Lease                     // a peer leads an election only while a majority confirms it
	Forget                    // an ended election is remembered while a candidate may have its lease
	Agreement                 // peers compare the checksums of their histories
	Deduplication             // an update is applied once, however often the log contains it
)
