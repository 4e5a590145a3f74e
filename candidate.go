package leaderelection

import "github.com/go-leaderelection/leaderelection/event"

// Candidate is a participant in an election. [Election] implements it on ZooKeeper; the
// packages below adapters implement it on other systems. All methods may be called from any
// goroutine, at any time.
//
//	go candidate.ElectLeader()
//	for status := range candidate.Status() {
//		...
//	}
type Candidate interface {
	// ID returns the name of this candidate, which is unique in its election. The candidates
	// that follow it report it in Status.NowFollowing. ID returns "" if the server assigns
	// the ID and has not done so yet. An ID changes only if the candidate rejoins the election
	// in a new session ([WithRejoin]).
	ID() string

	// ElectLeader runs the candidacy and blocks until it is over. It is usually started
	// with go. It returns the error that ended the candidacy, or nil after Resign, also if Resign
	// was called before. A candidate can run only once: later calls return
	// [ErrAlreadyStarted].
	ElectLeader() error

	// Status returns the channel that delivers this candidate's roles. Every call returns
	// the same channel. It delivers an initial status, then each change. It is closed once,
	// when the candidacy is over. Sending never blocks on the reader.
	//
	// A slow reader receives the newest status instead of those that it missed, with two
	// exceptions that are always delivered: the loss of a leadership that the reader has
	// received, and the final status with the error that ended the candidacy. A candidacy
	// that ends by Resign has no final status: unread statuses are discarded and the
	// channel is closed.
	Status() <-chan Status

	// Current returns the newest status without receiving it from the channel. Its Role is
	// Follower after the candidacy is over.
	Current() Status

	// Events returns the channel that delivers what happens to this candidate, for metrics
	// and logs: see [event.Event]. Every call returns the same channel. Call it before ElectLeader:
	// earlier events are lost, and [Election] reports checks and watches only from the next
	// session on that it joins. Without a call, events cost
	// nothing; the first call allocates about 7 KiB.
	//
	// Events must not be used to start or stop the leader's work: use Status and
	// Leadership.Done instead. Events can be received late, and do not delay the candidate.
	// Up to 64 events wait for the reader. Then the oldest event is dropped for each new one;
	// events of event.Checked, event.Watched and event.Heartbeat are dropped as soon as 32 events
	// wait. Event.Missed is the number of dropped events. The channel is closed when the
	// candidacy is over; the reader still receives the events that wait.
	Events() <-chan event.Event

	// Resign ends the candidacy, including the leadership if this candidate is the leader:
	// Leadership.Done is closed before another candidate can become leader. Then the Status
	// channel is closed. Resign blocks for at most two seconds.
	//
	// Resign returns nil if the backend has confirmed that this candidate was removed from
	// the election. It returns an error that wraps [ErrUnconfirmed] if it has not; the
	// removal then continues in the background. Resign may be called repeatedly, to check
	// the current state of the removal.
	Resign() error

	// EndElection ends the election for all candidates, including this one. Each receives a
	// final status with [ErrElectionOver], as do candidates that join later. No candidate
	// can become leader any more.
	//
	// EndElection may be called repeatedly and returns within about two seconds. It returns
	// an error that wraps [ErrUnconfirmed] if the end is not confirmed by then. After any
	// other error the candidacy continues unless the election has ended.
	EndElection() error
}
