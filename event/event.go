// Package event defines the events of candidates, which Candidate.Events of package
// leaderelection delivers for metrics and logs, and those of recipes, which recipes.WithEvents delivers.
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
	//
	// For recipes it reports that a znode with Token exists that is maintained: that of a member of a
	// group, of an instance of a service, or of a group.Persistent. Subject is its path. One Released or
	// Lost follows. The members of shards report it for the group at <path>/members.
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
	//
	// For recipes it follows Opened, and reports that there will be no further Listed, Fresh or Planned. Err is the
	// reason, or nil if the context of a watch is done. Events of holds, items and znodes may follow.
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
	// Watched reports that the backend has confirmed a watch. On ZooKeeper, Subject is the watched znode:
	// the candidate's, its predecessor's, or that of the candidate before. Watches that the client library
	// restores after a reconnect are not reported. On a changefeed, it reports that the feed has delivered
	// the current record. Candidates of other elections do not report it.
	Watched
	// WatchFailed reports that the feed of a changefeed has ended, could not be opened, or has not delivered a
	// write in time. The feed is opened again. Err is the error.
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

	// Acquired reports that a lock, leases of a semaphore, or a shard were granted to a caller, or that a consumer has
	// received an item of a queue. Subject is the path of the holder's znode, the name of the shard or the ID of the
	// item. Duration is how long the caller has waited, or the age of the item. Reason is that of a shard. One
	// Released, Returned, Rejected or Lost follows. A recipe reports Lost for a hold, a shard, a claim, a participant
	// of a round or a znode, with its reason, as an election does for a leadership.
	Acquired
	// Released reports that a hold or a shard was released, an item acknowledged, a round left, or a znode removed.
	// Duration is how long it was held, except for a znode. Reason is why the release of a shard was requested. Err is
	// set if the removal of a znode is not confirmed.
	Released
	// Returned reports that a consumer returns an item to the queue. Duration is how long it was held, and Err is the
	// cause, or nil.
	Returned
	// Rejected reports that an item becomes a dead letter. Err is the reason, and Duration how long a consumer has held
	// it. Token is 0 if no consumer has received it.
	Rejected
	// Listed reports that a consumer has listed a queue, of which Count is the number of items that it has not claimed
	// itself, or that a watch of a group or a provider has read a list of Count members or enabled instances. Consumers
	// list a queue when it has changed, but not for each change.
	Listed
	// Stale reports that a cache may be out of date because the connection was lost.
	Stale
	// Fresh reports that a cache was filled, or is up to date again. Duration is how long that took, and
	// Count the number of its znodes.
	Fresh
	// Opened reports that a queue has its first consumer in this process, that a cache or a provider was
	// created, that a watch of a group begins, or that a member of shards has joined. One Ended follows.
	// Several can refer to one path.
	Opened
	// Waiting reports that a caller begins to wait at a barrier, or for a round of a double barrier. One
	// Passed follows.
	Waiting
	// Passed reports that a wait is over that Waiting has reported. Duration is how long it was, and Err
	// the reason if the caller has not passed. For a double barrier, Token is that of the participant and
	// Subject the path of its znode; one Released or Lost follows.
	Passed
	// Planned reports that a member of shards follows a plan, of which Token is the version, and Count the
	// number of shards that have an owner in it. Err is set if there was no leader to make a plan for the
	// present members, and the member has computed this one.
	Planned
)

var kindNames = [...]string{
	Joined: "joined", Elected: "elected", HandOver: "hand-over", Suspended: "suspended",
	Resumed: "resumed", Lost: "lost", Ended: "ended", Checked: "checked", Watched: "watched",
	WatchFailed: "watch failed", RequestRejected: "request rejected", NewLeader: "new leader",
	Heartbeat: "heartbeat",
	Acquired:  "acquired", Released: "released", Returned: "returned", Rejected: "rejected", Listed: "listed",
	Stale: "stale", Fresh: "fresh", Opened: "opened", Waiting: "waiting", Passed: "passed", Planned: "planned",
}

// String returns the name of the kind in lower case.
func (k Kind) String() string {
	if k <= 0 || int(k) >= len(kindNames) {
		return fmt.Sprintf("Kind(%d)", int(k))
	}
	return kindNames[k]
}

// Event is delivered by Candidate.Events of package leaderelection, and by recipes.WithEvents. Fields that the
// documentation of its kind does not mention are zero, except Time, ID, Path and Missed.
type Event struct {
	// Kind is the kind of the event.
	Kind Kind
	// Time is when the event was reported, which is after it has taken effect.
	Time time.Time
	// ID is the candidate's ID. It is empty before the candidate has one, and for recipes.
	ID string
	// Recipe is the recipe that reports the event: "lock", "queue", "cache", "barrier", "group",
	// "discovery" or "shard". It is empty for elections.
	Recipe string
	// Path is the path of the recipe, and for discovery that of the service. It is empty for elections.
	Path string
	// Subject is the ID of the candidate that the event concerns: the leader of NewLeader and
	// Heartbeat, the watched candidate of Watched.
	Subject string
	// Token is the fencing token of the leadership. It is set for Elected, HandOver, Suspended, Resumed, Lost,
	// NewLeader and Heartbeat, and is that of a hold, a claim, a participant or a znode for Joined, Acquired,
	// Released, Returned, Rejected, Passed and Lost of recipes. For Planned it is the version of the plan.
	Token int64
	// Duration is the length of what the event reports, such as a hand-over, a check, a wait or a hold.
	Duration time.Duration
	// Count is the number of items, znodes, members, instances or shards.
	Count int
	// Reason is why a shard has moved, a shard.Reason. It is empty if the shard has the owner that it had before.
	Reason string
	// Err is the reason why the event happened, or the error of what the event reports. It is nil
	// if there is none.
	Err error
	// Missed is the number of earlier events that were dropped because too many were waiting. Each
	// dropped event is counted by one delivered event only.
	Missed int
}

// String returns a description for logs.
func (e Event) String() string {
	s := e.Kind.String()
	for _, name := range []string{e.ID, e.Recipe, e.Path} {
		if name != "" {
			s += " " + name
		}
	}
	if e.Subject != "" {
		s += ": " + e.Subject
	}
	if e.Token != 0 {
		s += fmt.Sprintf(" token %d", e.Token)
	}
	if e.Count != 0 {
		s += fmt.Sprintf(" count %d", e.Count)
	}
	if e.Reason != "" {
		s += " " + e.Reason
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
