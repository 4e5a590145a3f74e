package changefeed

import (
	"fmt"
	"sync"
)

// Notice is an event of a candidacy that is no change of its role.
type Notice struct {
	Kind NoticeKind
	// Leader and Term say who leads, for NewLeader and Heartbeat.
	Leader string
	Term   int64
	// Err is the error of SubscriptionError, HeartbeatError and StoreError. A feed that
	// works, and does not tell of what was written, is [ErrStale].
	Err error
	// Missed is how many notices were left out before this one, because nobody read.
	Missed int
}

// NoticeKind is what a [Notice] is about.
type NoticeKind int

const (
	// NewLeader: somebody leads that did not before, the first one and this candidate
	// included.
	NewLeader NoticeKind = iota + 1
	// SubscriptionStarted: the feed works; it has told what there is.
	SubscriptionStarted
	// SubscriptionError: the feed has ended, could not be opened, or is behind. It is
	// opened anew.
	SubscriptionError
	// HeartbeatError: a heartbeat was not acknowledged. The leadership goes on as long
	// as its lease.
	HeartbeatError
	// StoreError: the store has refused a request other than a heartbeat, with an error
	// that wraps [ErrUnsuitable], such as a missing permission. The request is repeated
	// until it succeeds, at most once per heartbeat.
	StoreError
	// Heartbeat: the leader has written a heartbeat, this candidate included. It is told if
	// [WithHeartbeatNotices] asks for it. Feeds may leave out heartbeats that follow each
	// other quickly.
	Heartbeat
)

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
