package zktest

import (
	"container/heap"
	"time"
)

// activity records the packets of a session's client. The leader, which expires sessions, learns immediately of a
// packet that the leader receives itself, and of a new or reattached session. A follower reports the packets of
// its clients with the answer to the leader's next ping; pings are half a tick apart. If the follower is cut off
// before that ping, the leader expires the session by the last activity that the follower has reported.
type activity struct {
	deadline time.Time // the session expires at this tick unless the leader learns of a later packet
	// reported is the deadline according to the reports of followers, without the packets that the
	// leader received itself. It replaces deadline if the client is cut off together with its
	// server.
	reported time.Time
	pending  *conn     // the connection of a packet that the server has not reported yet, or nil
	due      time.Time // the time of the ping whose answer reports the packet of pending
	counted  bool      // reports that the deadline already accounts for the packet of pending
}

// roundToTick returns the first tick after t. Ticks are counted from the start of the ensemble,
// so that they are the same in each run in fake time.
func (e *ensemble) roundToTick(t time.Time) time.Time {
	n := t.Sub(e.started)/e.cfg.tick + 1
	return e.started.Add(n * e.cfg.tick)
}

// nextPing returns the time of the first ping between servers after t. Every second ping is sent
// right before a tick, so that rounding to ticks adds hardly anything to the life of a session whose
// timeout is a multiple of the tick. This is the worst case for a client.
func (e *ensemble) nextPing(t time.Time) time.Time {
	half, ahead := e.cfg.tick/2, e.cfg.tick/64
	n := (t.Sub(e.started)+ahead)/half + 1
	return e.started.Add(n*half - ahead)
}

// extendSession extends the session s from now by its timeout, because the leader itself has
// received a packet of the client.
func (e *ensemble) extendSession(s *session) {
	s.pending = nil
	d := e.roundToTick(e.nowLocked().Add(s.timeout))
	postpone(&s.reported, d)
	postpone(&s.deadline, d)
}

// postpone sets *deadline to d if d is later.
func postpone(deadline *time.Time, d time.Time) {
	if d.After(*deadline) {
		*deadline = d
	}
}

// recordPacket records that a packet of the session's client arrived over c.
func (e *ensemble) recordPacket(c *conn) {
	s, now := c.sess, e.nowLocked()
	e.applyReport(s)
	if s.pending == nil || s.pending.srv != c.srv || !s.due.After(now) {
		s.due = e.nextPing(now)
	}
	s.pending = c
	if s.counted = c.reachesLeader() && (len(e.servers) == 1 || c.srv.id == e.leader); s.counted {
		postpone(&s.deadline, e.roundToTick(now.Add(s.timeout)))
	}
}

// applyReport extends s by the timeout from the ping whose answer reports the pending packet of s,
// if the ping was sent by now.
func (e *ensemble) applyReport(s *session) {
	if s.pending == nil || !s.pending.reachesLeader() || s.due.After(e.nowLocked()) {
		return
	}
	s.pending = nil
	d := e.roundToTick(s.due.Add(s.timeout))
	postpone(&s.reported, d)
	if !s.counted {
		postpone(&s.deadline, d)
	}
}

// reachesLeader reports whether the leader receives the reports of activity that the server of c sends.
func (c *conn) reachesLeader() bool {
	s := c.srv
	// A connection that reads from another view than its server behaves as if it had a server of its
	// own.
	alone := c.view != nil && c.view != s.view
	return !s.cut && !s.paused && !s.stopped && c.e.quorum && !alone
}

// applyReports calls applyReport for each session, and schedules the activity that a server could
// not report by now for a later ping. The caller must call applyReports before it changes the result
// of reachesLeader.
func (e *ensemble) applyReports() {
	now := e.nowLocked()
	for _, s := range e.sessions {
		if e.applyReport(s); s.pending != nil && !s.due.After(now) {
			s.due = e.nextPing(now)
		}
	}
}

// useReportedDeadline sets the deadline of s to what the leader would know if the client's server were a
// follower and were cut off now.
func (e *ensemble) useReportedDeadline(s *session) {
	s.deadline, s.counted = s.reported, false
	if s.index >= 0 && s.queued.After(s.deadline) {
		s.queued = s.deadline
		heap.Fix(&e.expiry, s.index)
		e.startExpiryTimer()
	}
}

// forgetUnreported discards the packets that server s has not reported to the leader.
func (s *Server) forgetUnreported() {
	for _, x := range s.e.sessions {
		if x.pending != nil && x.pending.srv == s {
			x.pending = nil
		}
	}
}

// extendAllSessions gives each session its whole timeout, as a new leader does.
func (e *ensemble) extendAllSessions() {
	for _, s := range e.sessions {
		e.extendSession(s)
	}
}
