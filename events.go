package leaderelection

import (
	"fmt"
	"sync"
	"time"
)

// EventKind is the kind of an [Event].
type EventKind int

const (
	// EventJoined reports that the candidate has joined the election with ID: on ZooKeeper
	// and etcd its znode or key exists, on a Raft log it is queued, and on a changefeed it
	// has started. A candidate that rejoins reports it for each session.
	EventJoined EventKind = iota + 1
	// EventElected reports that the candidate has become the leader with Token.
	EventElected
	// EventHandOver follows EventElected if the candidate was notified that its last
	// predecessor has left. Duration is the time from that notification until the
	// leadership was available. It does not include the removal of the predecessor and the
	// delivery of the notification. EventHandOver is not reported for the first candidate,
	// and if the departure was found only after a reconnect. Candidates on ZooKeeper and etcd
	// report it.
	EventHandOver
	// EventSuspended reports that the leader's lease has expired. Err is the reason.
	EventSuspended
	// EventResumed reports that a suspended leader has become leader again, with the same
	// Token.
	EventResumed
	// EventLost reports that a leadership has ended, whether or not it was suspended: once
	// for each EventElected. Err is the reason, as returned by [Leadership.Err].
	// [ErrCandidateDeleted] can also be the first indication that the election was ended or
	// that the session has expired; the Err of EventEnded is definite.
	EventLost
	// EventEnded is the last event: the candidacy is over. Err is the error of the final
	// status, or [ErrResigned]. It is not reported if ElectLeader was not called.
	EventEnded
	// EventChecked reports that a request that extends the lease was answered or has
	// failed. Err is nil if the lease was extended. Duration is the response time, or 0 if
	// Err is set.
	//
	// On ZooKeeper, the leader sends such a write in each eighth of the session timeout, by
	// default. Its direct follower does so for the first four session timeouts. Elections on one connection share the write, and
	// each of them reports it. The creation of the candidate's znode, which starts the
	// first lease, is not reported. On etcd it is a keepalive request, and on a changefeed
	// a heartbeat of the leader, except one that finds the record replaced by another
	// candidate. Candidates on a Raft log do not report it, because their peer has the lease.
	EventChecked
	// EventWatched reports that the backend has confirmed a watch. On ZooKeeper, Subject is
	// the watched znode: the candidate's or its predecessor's. Watches that the client
	// library restores after a reconnect are not reported. On a changefeed, it reports that
	// the feed has delivered the current record. Other candidates do not report it.
	EventWatched
	// EventWatchFailed reports that the feed of a changefeed has ended, could not be opened,
	// or is late. It is opened again. Err is the error.
	EventWatchFailed
	// EventRequestRejected reports that the store of a changefeed has rejected a request,
	// other than a heartbeat, which will fail until the store is changed, for instance
	// because of a missing permission. Err is the error. The request is retried.
	EventRequestRejected
	// EventNewLeader reports that a candidate on a changefeed knows of a new leader,
	// including the first one and itself. Subject is the leader's ID, Token its token.
	EventNewLeader
	// EventHeartbeat reports that a candidate on a changefeed knows of a heartbeat of the
	// leader, which can be the candidate. Subject is the leader's ID, Token its token. Feeds
	// may omit heartbeats that follow each other quickly.
	EventHeartbeat
)

var eventKinds = [...]string{
	EventJoined: "joined", EventElected: "elected", EventHandOver: "hand-over", EventSuspended: "suspended",
	EventResumed: "resumed", EventLost: "lost", EventEnded: "ended", EventChecked: "checked", EventWatched: "watched",
	EventWatchFailed: "watch failed", EventRequestRejected: "request rejected", EventNewLeader: "new leader",
	EventHeartbeat: "heartbeat",
}

// String returns the name of the kind in lower case.
func (k EventKind) String() string {
	if k <= 0 || int(k) >= len(eventKinds) {
		return fmt.Sprintf("EventKind(%d)", int(k))
	}
	return eventKinds[k]
}

// frequent reports whether events of this kind may be numerous. Only their number matters.
func (k EventKind) frequent() bool {
	return k == EventChecked || k == EventWatched || k == EventHeartbeat
}

// Event is delivered by [Candidate.Events]. Fields that the documentation of its kind does not
// mention are zero, except Time, ID and Missed.
type Event struct {
	// Kind is the kind of the event.
	Kind EventKind
	// Time is when the event was reported, which is after it has taken effect.
	Time time.Time
	// ID is the candidate's ID. It is empty before the candidate has one.
	ID string
	// Subject is the ID of the candidate that the event concerns: the leader of
	// EventNewLeader and EventHeartbeat, the watched candidate of EventWatched.
	Subject string
	// Token is the fencing token of the leadership. It is set for EventElected,
	// EventHandOver, EventSuspended, EventResumed, EventLost, EventNewLeader and
	// EventHeartbeat.
	Token int64
	// Duration is how long the hand-over or the check took.
	Duration time.Duration
	// Err is the reason or the error.
	Err error
	// Missed is the number of events before this one that were dropped because too many
	// were waiting, except those that an earlier delivered event has counted.
	Missed int
}

// String returns a description for logs.
func (e Event) String() string {
	s := e.Kind.String()
	if e.ID != "" {
		s += " " + e.ID
	}
	if e.Subject != "" {
		s += ": " + e.Subject
	}
	if e.Token != 0 {
		s += fmt.Sprintf(" token %d", e.Token)
	}
	if e.Duration != 0 {
		s += fmt.Sprintf(" after %v", e.Duration)
	}
	if e.Err != nil {
		s += fmt.Sprintf(": %v", e.Err)
	}
	if e.Missed > 0 {
		s += fmt.Sprintf(" (%d were missed)", e.Missed)
	}
	return s
}

const (
	// maxEvents is the number of events that wait for the reader.
	maxEvents = 64
	// maxFrequent is the number of waiting events from which on frequent ones are dropped.
	maxFrequent = maxEvents / 2
)

// eventStream implements [Candidate.Events]. It never blocks on the reader. Its methods may be
// called from any goroutine; those that return nothing do nothing if it is nil.
type eventStream struct {
	c chan Event

	mu      sync.Mutex
	missed  int       // dropped, and not reported yet
	token   int64     // of the newest leadership
	term    term      // of the newest leadership
	vacated time.Time // when the last predecessor left; zero if that is unknown
	closed  bool
}

// term is the progress of a leadership, as it was reported.
type term uint8

const (
	noTerm term = iota // not elected, or lost
	leadingTerm
	suspendedTerm
)

// newEventStream returns a stream of the events from now on. current is the current leadership,
// or nil.
func newEventStream(current *Leadership) *eventStream {
	s := &eventStream{c: make(chan Event, maxEvents)}
	if current != nil {
		s.token, s.term = current.Token(), leadingTerm
	}
	return s
}

// C returns the channel.
func (s *eventStream) C() <-chan Event { return s.c }

// SetVacated sets when the last predecessor left, or the zero time if that is unknown.
func (s *eventStream) SetVacated(t time.Time) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vacated = t
}

// Add delivers e to the reader, unless e contradicts the events before it or Close was called.
// EventElected is followed by EventHandOver if it is known when the predecessor left.
func (s *eventStream) Add(e Event) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || !s.follows(&e) {
		return
	}
	e.Time = time.Now()
	s.send(e)
	if e.Kind == EventElected && !s.vacated.IsZero() {
		s.send(Event{Kind: EventHandOver, Time: e.Time, ID: e.ID, Token: e.Token, Duration: e.Time.Sub(s.vacated)})
		s.vacated = time.Time{}
	}
}

// send sends e, and drops the oldest event, or e itself, if too many wait.
func (s *eventStream) send(e Event) {
	if e.Kind.frequent() && len(s.c) >= maxFrequent {
		s.missed++
		return
	}
	e.Missed, s.missed = s.missed, 0
	for {
		select {
		case s.c <- e:
			return
		default:
		}
		// Drop the oldest event. The others must stay in the channel: if they were removed
		// and sent again, a concurrent reader could receive them in the wrong order.
		select {
		case oldest := <-s.c:
			e.Missed += oldest.Missed + 1
		default:
		}
	}
}

// follows records the progress of leaderships, and adds to e what follows from that. It returns
// false if e does not change it.
func (s *eventStream) follows(e *Event) bool {
	switch e.Kind {
	case EventJoined:
		s.vacated = time.Time{}
	case EventElected:
		switch {
		case s.term == leadingTerm:
			return false
		case s.term == suspendedTerm && s.token == e.Token:
			e.Kind = EventResumed
		}
		s.term, s.token = leadingTerm, e.Token
	case EventSuspended:
		if s.term != leadingTerm {
			return false
		}
		s.term, e.Token = suspendedTerm, s.token
	case EventLost:
		if s.term == noTerm {
			return false
		}
		s.term, e.Token = noTerm, s.token
	}
	return true
}

// End delivers e as the last event and closes the channel.
func (s *eventStream) End(e Event) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		e.Time = time.Now()
		s.send(e)
		s.closed = true
		close(s.c)
	}
}

// Close closes the channel. The reader still receives the events that wait.
func (s *eventStream) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.c)
	}
}
