package replica

// A Check is a safety check of the log that the simulation disables, to show that it detects the
// violations which follow. Other programs cannot disable a check: without the build tag
// raftlog_controls a Disabled is always empty, and the compiler removes the tests of it.
type Check uint

// The checks. Those of the engine's driver are in package core.
const (
	CheckVoteHold      Check = iota // a peer that has just started does not vote
	CheckLease                      // a peer leads an election only while a majority confirms it
	CheckForget                     // an ended election is stored while a candidate may have its lease
	CheckAgreement                  // peers compare the checksums of their histories
	CheckDeduplication              // an update is applied once, however often the log contains it
)
