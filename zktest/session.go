package zktest

import (
	"container/heap"
	"errors"
	"time"
)

// session is one client's session. The ensemble's lock guards it.
type session struct {
	id       int64
	password [16]byte
	timeout  time.Duration
	queued   time.Time // the deadline under which it is in the heap
	index    int       // in the heap; -1 when not in it
	conn     *conn     // the connection it is attached to, nil if none
	earlier  []*conn   // connections to other servers that the client has not closed
	activity
}

// sessionQueue orders sessions by the deadline under which they were queued. A
// packet only moves session.deadline, which is cheap; the queue finds out when
// the old deadline comes.
type sessionQueue []*session

func (q sessionQueue) Len() int { return len(q) }

func (q sessionQueue) Less(i, j int) bool {
	if q[i].queued.Equal(q[j].queued) {
		return q[i].id < q[j].id
	}
	return q[i].queued.Before(q[j].queued)
}

func (q sessionQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *sessionQueue) Push(x any) {
	s := x.(*session)
	s.index = len(*q)
	*q = append(*q, s)
}

func (q *sessionQueue) Pop() any {
	old := *q
	s := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	s.index = -1
	return s
}

// newSession makes a session and counts a transaction for it.
func (e *ensemble) newSession(timeout time.Duration, server int) *session {
	e.nextSession++
	// The layout of the real server: its number, the time of its start, a counter. Ensembles
	// that start at the same time, of a bubble for instance, differ by their number.
	base := int64(uint64(e.started.UnixMilli()+e.number)<<24>>8) | int64(server+1)<<56
	s := &session{id: base + e.nextSession, timeout: timeout, index: -1}
	seed := uint64(s.id)
	for i := range s.password { // any client is told its password; it only has to differ
		seed = seed*6364136223846793005 + 1442695040888963407
		s.password[i] = byte(seed >> 56)
	}
	e.sessions[s.id] = s
	e.touch(s)
	s.queued = s.deadline
	heap.Push(&e.expiry, s)
	e.armExpiry()
	return s
}

// armExpiry sets the one timer to the earliest deadline in the queue.
func (e *ensemble) armExpiry() {
	if e.stopExpiry != nil {
		if len(e.expiry) > 0 && e.expiry[0].queued.Equal(e.armedFor) {
			return
		}
		e.stopExpiry()
		e.stopExpiry = nil
	}
	if len(e.expiry) == 0 || e.closed || !e.quorum {
		return
	}
	e.armedFor = e.expiry[0].queued
	e.expiryTimer++
	id := e.expiryTimer
	e.stopExpiry = e.timer(e.armedFor.Sub(e.clock.now()), func() { e.expireDue(id) })
}

// expireDue ends the sessions whose time is over.
func (e *ensemble) expireDue(timer int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if timer != e.expiryTimer || e.stopExpiry == nil {
		return // another timer was set when this one had fired already
	}
	e.stopExpiry = nil
	if e.closed || !e.quorum {
		return
	}
	now := e.nowLocked()
	for len(e.expiry) > 0 && !e.expiry[0].queued.After(now) {
		s := e.expiry[0]
		if e.report(s); s.deadline.After(now) {
			s.queued = s.deadline
			heap.Fix(&e.expiry, 0)
			continue
		}
		e.endSession(s, false)
	}
	e.armExpiry()
}

// endSession deletes what s owns, in one transaction. If the client asked for it,
// who serves the request answers, logs and closes; otherwise that is done here.
func (e *ensemble) endSession(s *session, asked bool) {
	t := e.begin()
	t.ended = s
	delete(e.sessions, s.id)
	if s.index >= 0 {
		heap.Remove(&e.expiry, s.index)
	}
	server := 0
	if s.conn != nil {
		server = s.conn.srv.id
	}
	for _, n := range e.tree.ephemerals(s.id) {
		t.add(change{kind: changeDelete, path: n.path})
	}
	e.commit(t)
	for _, c := range s.earlier {
		c.sessionEnded()
	}
	if asked {
		return
	}
	e.record(Entry{Op: OpCloseSession, Session: s.id, Zxid: t.zxid, Server: server})
	if s.conn != nil {
		s.conn.sessionEnded()
	}
}

// sessionEnded closes c, unless its server does not know yet that the session has ended.
func (c *conn) sessionEnded() {
	if c.view == nil {
		c.hangUp()
	}
}

// ErrNoSession is returned if a session does not exist or has expired.
var ErrNoSession = errors.New("zktest: no such session")

// ExpireSession expires a session as if its timeout had passed: its ephemeral znodes are
// deleted in one transaction, watches fire, and its connection is closed. If the client
// is cut off at that moment, it is not notified. The error is [ErrNoSession].
func (s *Server) ExpireSession(id int64) error {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	x := s.e.sessions[id]
	if x == nil || s.e.closed {
		return ErrNoSession
	}
	s.e.endSession(x, false)
	return nil
}
