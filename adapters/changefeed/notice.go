package changefeed

import (
	"fmt"
	"sync"
)

// Notice is an event of a candidacy other than a change of its role.
type Notice struct {
	// Kind is the kind of the event.
	Kind NoticeKind
	// Leader is the ID of the leader. It is set for NewLeader and Heartbeat.
	Leader string
	// Term is the term of the leader. It is set for NewLeader and Heartbeat.
	Term int64
	// Err is the error of SubscriptionError, HeartbeatError and StoreError. It is
	// [ErrStale] if a feed works but does not deliver a known write.
	Err error
	// Missed is the number of notices that were dropped before this one because the channel
	// was full.
	Missed int
}

// NoticeKind is the kind of a [Notice].
type NoticeKind int

const (
	// NewLeader reports a new leader, including the first one, and including this
	// candidate.
	NewLeader NoticeKind = iota + 1
	// SubscriptionStarted reports that the feed has delivered the current record.
	SubscriptionStarted
	// SubscriptionError reports that the feed has ended, could not be opened, or is late.
	// It is opened again.
	SubscriptionError
	// HeartbeatError reports that a heartbeat was not acknowledged. The leadership
	// continues until its lease expires.
	HeartbeatError
	// StoreError reports that the store has rejected a request other than a heartbeat with
	// an error that wraps [ErrUnsuitable], for instance because of a missing permission.
	// The request is retried until it succeeds, at most once per heartbeat.
	StoreError
	// Heartbeat reports a heartbeat of the leader, including this candidate. It requires
	// [WithHeartbeatNotices]. Feeds may omit heartbeats that follow each other quickly.
	Heartbeat
)

// String returns the name of the kind.
func (k NoticeKind) String() string {
	switch k {
	case NewLeader:
		return "new leader"
	case SubscriptionStarted:
		return "subscription started"
	case SubscriptionError:
		return "subscription error"
	case HeartbeatError:
		return "heartbeat error"
	case StoreError:
		return "store error"
	case Heartbeat:
		return "heartbeat"
	}
	return fmt.Sprintf("NoticeKind(%d)", int(k))
}

// String returns a description for logs.
func (n Notice) String() string {
	s := n.Kind.String()
	if n.Kind == NewLeader || n.Kind == Heartbeat {
		s += fmt.Sprintf(" %s, token %d", n.Leader, n.Term)
	}
	if n.Err != nil {
		s += fmt.Sprintf(": %v", n.Err)
	}
	if n.Missed > 0 {
		s += fmt.Sprintf(" (%d were missed)", n.Missed)
	}
	return s
}

// maxNotices is how many wait for a reader.
const maxNotices = 64

// notices waits for no reader: the oldest go, and are counted.
type notices struct {
	c chan Notice

	mu     sync.Mutex
	closed bool
}

func newNotices() *notices { return &notices{c: make(chan Notice, maxNotices)} }

func (q *notices) put(n Notice) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	for {
		select {
		case q.c <- n:
			return
		default:
		}
		q.makeRoom(&n)
	}
}

// makeRoom leaves the oldest out, and counts it in the next.
func (q *notices) makeRoom(n *Notice) {
	var all []Notice
	for {
		select {
		case o := <-q.c:
			all = append(all, o)
			continue
		default:
		}
		break
	}
	if len(all) == 0 { // somebody has read
		return
	}
	lost := all[0].Missed + 1
	if all = all[1:]; len(all) == 0 {
		n.Missed += lost
		return
	}
	all[0].Missed += lost
	for _, o := range all {
		q.c <- o // there is room: nobody else sends
	}
}

func (q *notices) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.closed = true
		close(q.c)
	}
}
