package zktest

import (
	"container/heap"
	"errors"
	"time"
)

// session is a client's session. The lock of the ensemble guards it.
type session struct {
	id       int64
	password [16]byte
	timeout  time.Duration
	queued   time.Time // the deadline by which the queue orders the session; it can be earlier than activity.deadline
	index    int       // the index of the session in the queue, or -1
	conn     *conn     // the connection to which the session is attached, or nil
	earlier  []*conn   // the connections to other servers that the session has left, and that the client has not closed
	activity
}

// sessionQueue orders sessions by the deadline at which they were queued. A packet changes only
// session.deadline and not the queue, which is cheap. When the deadline in the queue has passed,
// expireSessions moves the session to its current deadline.
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

// newSession creates a session for a client that is connected to the server with the given number.
func (e *ensemble) newSession(timeout time.Duration, server int) *session {
	e.nextSession++
	// As on a real server, the ID consists of the server's number, the time of its start, and a
	// counter. Ensembles that start at the same time, for instance in a bubble, differ by their number.
	base := int64(uint64(e.started.UnixMilli()+e.number)<<24>>8) | int64(server+1)<<56
	s := &session{id: base + e.nextSession, timeout: timeout, index: -1}
	seed := uint64(s.id)
	for i := range s.password { // the password need not be secret, because the server sends it to any client
		seed = seed*6364136223846793005 + 1442695040888963407
		s.password[i] = byte(seed >> 56)
	}
	e.sessions[s.id] = s
	e.extendSession(s)
	s.queued = s.deadline
	heap.Push(&e.expiry, s)
	e.startExpiryTimer()
	return s
}

// startExpiryTimer starts the timer for the earliest deadline in the queue.
func (e *ensemble) startExpiryTimer() {
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
	e.stopExpiry = e.startTimer(e.armedFor.Sub(e.clock.now()), func() { e.expireSessions(id) })
}

// expireSessions closes the sessions whose deadline has passed. timer is the number of the timer
// that calls it.
func (e *ensemble) expireSessions(timer int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if timer != e.expiryTimer || e.stopExpiry == nil {
		return // do nothing, because startExpiryTimer has started another timer after this one had fired
	}
	e.stopExpiry = nil
	if e.closed || !e.quorum {
		return
	}
	now := e.nowLocked()
	for len(e.expiry) > 0 && !e.expiry[0].queued.After(now) {
		s := e.expiry[0]
		if e.applyReport(s); s.deadline.After(now) {
			s.queued = s.deadline
			heap.Fix(&e.expiry, 0)
			continue
		}
		e.closeSession(s, false)
	}
	e.startExpiryTimer()
}

// closeSession deletes the session and its ephemeral znodes in one transaction. asked is true if the
// client has requested to close the session: then the caller sends the reply, adds the log entry
// and closes the connection.
func (e *ensemble) closeSession(s *session, asked bool) {
	t := e.beginTxn()
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
	e.commitTxn(t)
	for _, c := range s.earlier {
		c.closeAfterSession()
	}
	if asked {
		return
	}
	e.addLogEntry(Entry{Op: OpCloseSession, Session: s.id, Zxid: t.zxid, Server: server})
	if s.conn != nil {
		s.conn.closeAfterSession()
	}
}

// closeAfterSession closes c, whose session has ended. If c reads from a view, closeAfterSession
// does nothing, because the server of c has not learned yet that the session has ended.
func (c *conn) closeAfterSession() {
	if c.view == nil {
		c.closeWhenSent()
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
	s.e.closeSession(x, false)
	return nil
}
