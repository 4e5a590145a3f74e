package leaderelection

// Candidate is a participant in an election, whatever the election stands on.
// [Election] is the one on ZooKeeper. Every method may be called from any
// goroutine and at any time.
//
//	go candidate.ElectLeader()
//	for status := range candidate.Status() {
//		...
//	}
type Candidate interface {
	// ID names this candidate among those of its election; it is what other
	// candidates report as NowFollowing. It does not change once it is known.
	// Before the candidate takes part it is empty if the server assigns it.
	ID() string

	// ElectLeader takes part in the election until the candidacy is over, and
	// returns what ended it: nil after Resign. It is meant to be started with
	// go. A candidate takes part once; every further call returns
	// [ErrAlreadyStarted], and [ErrCandidacyOver] once the candidacy is over.
	ElectLeader() error

	// Status returns the channel of this candidate's roles; every call returns
	// the same one. Every candidacy delivers a first status, then each change.
	// The library closes the channel, once, when the candidacy is over, and
	// never blocks on a reader.
	//
	// A reader that is late gets the newest status and not the ones that it
	// missed, with two exceptions that are always delivered: the end of a
	// leadership that the reader was told of, and the final status with the
	// error that ended the candidacy. A candidacy that ends by Resign has no
	// final status: what was not read is withdrawn and the channel closed.
	Status() <-chan Status

	// Current returns the newest status without taking it from the channel.
	// Once the candidacy is over its Role is Follower.
	Current() Status

	// Resign ends the candidacy, and with it the leadership if there is one:
	// Leadership.Done is closed before another candidate can learn of it.
	// After that the Status channel is closed, within two seconds in any case.
	//
	// Resign returns nil once it is confirmed that the election holds nothing
	// of this candidate any more, and an error that wraps [ErrUnconfirmed]
	// when that is still open; the withdrawal then goes on in the background.
	// It may be called any number of times and reports how things stand.
	Resign() error

	// EndElection ends the election for all its candidates, this one included.
	// Each of them gets a final status with [ErrElectionOver]. No candidate can
	// win any more, and newcomers get the same error.
	//
	// Like Resign it may be repeated, returns within about two seconds, and
	// says by [ErrUnconfirmed] that the end is not confirmed yet. With any
	// other error, which says why, the candidacy goes on as far as the election
	// does.
	EndElection() error
}
