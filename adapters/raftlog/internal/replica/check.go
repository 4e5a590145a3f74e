package replica

// A Check is a safety check of the log. The simulation disables checks, to show that it detects the
// violations which the checks prevent. Other programs cannot disable a check: without the build tag
// raftlog_controls, a Disabled is always empty, and the compiler removes the code that tests it.
type Check uint

// These are the safety checks that a test can disable. Package core implements some of them.
const (
	CheckVoteHold      Check = iota // a peer that has just started does not vote
	CheckLease                      // a peer leads an election only while a majority confirms its lease
	CheckForget                     // an ended election is stored while a candidate may have its lease
	CheckAgreement                  // peers compare the checksums of their histories
	CheckDeduplication              // an update is applied once, however often the log contains it
)
