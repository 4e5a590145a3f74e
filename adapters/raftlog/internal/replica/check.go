package replica

// A Check is a safety check of the log. The simulation disables checks, to show that it detects the
// violations that this causes. Other programs cannot disable a check: without the build tag
// raftlog_controls a Disabled is always empty, and the compiler removes the code that tests it.
type Check uint

// The safety checks that tests can disable. Package core implements some of them.
const (
	CheckVoteHold      Check = iota // checks that a peer that has just started does not vote
	CheckLease                      // checks that a peer leads an election only while a majority confirms it
	CheckForget                     // checks that an ended election is stored while a candidate may have its lease
	CheckAgreement                  // checks that peers have the same history, by checksums
	CheckDeduplication              // checks that an update is applied once, however often the log contains it
)
