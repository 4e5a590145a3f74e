// Package event defines the events of candidates, which Candidate.Events of package
// leaderelection delivers for metrics and logs.
package event

import (
	"fmt"
	"time"
)

// Kind is the kind of an [Event].
type Kind int

const (
	// Joined reports that the candidate has joined the election with ID: on ZooKeeper and etcd its
	// znode or key exists, on a Raft log it is queued, and on a changefeed it has started. A
	// candidate that rejoins reports it for each session.
	Joined Kind = iota + 1
	// Elected reports that the candidate has become the leader with Token.
	Elected
	// HandOver follows Elected if the candidate was notified that its last predecessor has left.
	// Duration is the time from that notification until the leadership was available. It does not
	// include the removal of the predecessor and the delivery of the notification. HandOver is not
	// reported for the first candidate, nor if the departure was found only after a reconnect.
	// Candidates on ZooKeeper and etcd report it.
	HandOver
	// Suspended reports that the leader's lease has expired. Err is the reason.
	Suspended
	// Resumed reports that a suspended leader has become leader again, with the same Token.
	Resumed
	// Lost reports that a leadership has ended, whether or not it was suspended: once for each
	// Elected. Err is the reason, as returned by Leadership.Err. ErrDeleted can also be the
	// first indication that the election was ended or that the session has expired; the Err of Ended
	// is definite.
	Lost
	// Ended is the last event: the candidacy is over. Err is the error of the final status, or
	// ErrResigned.
	Ended
	// Checked reports that a request that extends the lease was answered or has failed. Err is nil if
	// the lease was extended. Duration is the response time, or 0 if Err is set.
	//
	// On ZooKeeper, the leader sends such a write in each eighth of the session timeout, by default.
	// Its direct follower does so for the first four session timeouts. Elections on one connection
	// share the write, and each of them reports it. The creation of the candidate's znode, which
	// starts the first lease, is not reported. On etcd it is a keepalive request, and on a changefeed
	// a heartbeat of the leader, except if another candidate has replaced the record.
	// Candidates on a Raft log do not report it, because their peer has the lease.
	Checked
	// Watched reports that the backend has confirmed a watch. On ZooKeeper, Subject is the watched
	// znode: the candidate's, its predecessor's, or that of the candidate before. Watches that the client library restores after a
	// reconnect are not reported. On a changefeed, it reports that the feed has delivered the current
	// record. Candidates of other elections do not report it.
	Watched
	// WatchFailed reports that the feed of a changefeed has ended, could not be opened, or is late.
	// It is opened again. Err is the error.
	WatchFailed
	// RequestRejected reports that the store of a changefeed has rejected a request, other than a
	// heartbeat, which will fail until the store is changed, for instance because of a missing
	// permission. Err is the error. The request is retried.
	RequestRejected
	// NewLeader reports that a candidate on a changefeed knows of a new leader, including the first
	// one and itself. Subject is the leader's ID, Token its token.
	NewLeader
	// Heartbeat reports that a candidate on a changefeed knows of a heartbeat of the leader, which
	// can be the candidate. Subject is the leader's ID, Token its token. Feeds may omit heartbeats
	// that follow each other quickly.
	Heartbeat
)

var kindNames = [...]string{
	Joined: "joined", Elected: "elected", HandOver: "hand-over", Suspended: "suspended",
	Resumed: "resumed", Lost: "lost", Ended: "ended", Checked: "checked", Watched: "watched",
	WatchFailed: "watch failed", RequestRejected: "request rejected", NewLeader: "new leader",
	Heartbeat: "heartbeat",
}

// String returns the name of the kind in lower case.
func (k Kind) String() string {
	if k <= 0 || int(k) >= len(kindNames) {
		return fmt.Sprintf("Kind(%d)", int(k))
	}
	return kindNames[k]
}

// Event is delivered by Candidate.Events of package leaderelection. Fields that the documentation
// of its kind does not mention are zero, except Time, ID and Missed.
type Event struct {
	// Kind is the kind of the event.
	Kind Kind
	// Time is when the event was reported, which is after it has taken effect.
	Time time.Time
	// ID is the candidate's ID. It is empty before the candidate has one.
	ID string
	// Subject is the ID of the candidate that the event concerns: the leader of NewLeader and
	// Heartbeat, the watched candidate of Watched.
	Subject string
	// Token is the fencing token of the leadership. It is set for Elected, HandOver, Suspended,
	// Resumed, Lost, NewLeader and Heartbeat.
	Token int64
	// Duration is how long the hand-over or the check took.
	Duration time.Duration
	// Err is the reason or the error.
	Err error
	// Missed is the number of earlier events that were dropped because too many were waiting. Each
	// dropped event is counted by one delivered event only.
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
