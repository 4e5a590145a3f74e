package zktest

// What the leader of an ensemble knows of the activity of sessions.

import (
	"container/heap"
	"time"
)

// activity records the packets of a session's client. The leader expires sessions. It
// learns immediately of a packet that it receives itself, and of a new or reattached
// session. A follower reports the packets of its clients with the answer to the leader's
// next ping; pings are half a tick apart. If the follower is cut off before that ping, the
// leader expires the session by the last activity that was reported.
type activity struct {
	deadline time.Time // the session ends at this tick unless the leader learns of a later packet
	// reported is the deadline without the packets that the leader received itself. It
	// becomes the deadline if the client turns out to be cut off together with its server.
	reported time.Time
	pending  *conn     // the connection of a packet that is not reported yet, or nil
	due      time.Time // the ping whose answer reports it
	counted  bool      // the deadline accounts for that packet already
}

// roundToTick gives the first tick after t. Ticks are counted from the start of
// the ensemble, so that a replay in fake time sees the same ones.
func (e *ensemble) roundToTick(t time.Time) time.Time {
	n := t.Sub(e.started)/e.cfg.tick + 1
	return e.started.Add(n * e.cfg.tick)
}

// nextPing gives the time of the first ping between servers after t. Every second ping
// comes right before a tick. Rounding to ticks then adds hardly anything to the life of
// a session whose timeout is a multiple of the tick, which is the worst case for a client.
func (e *ensemble) nextPing(t time.Time) time.Time {
	half, ahead := e.cfg.tick/2, e.cfg.tick/64
	n := (t.Sub(e.started)+ahead)/half + 1
	return e.started.Add(n*half - ahead)
}

// touch extends the session s for activity of which the leader learns immediately.
func (e *ensemble) touch(s *session) {
	s.pending = nil
	d := e.roundToTick(e.nowLocked().Add(s.timeout))
	postpone(&s.reported, d)
	postpone(&s.deadline, d)
}

// postpone sets the deadline to d, if that is later.
func postpone(deadline *time.Time, d time.Time) {
	if d.After(*deadline) {
		*deadline = d
	}
}

// packet records that a packet of the session's client arrived over c.
func (e *ensemble) packet(c *conn) {
	s, now := c.sess, e.nowLocked()
	e.report(s)
	if s.pending == nil || s.pending.srv != c.srv || !s.due.After(now) {
		s.due = e.nextPing(now)
	}
	s.pending = c
	if s.counted = c.inTouch() && (len(e.servers) == 1 || c.srv.id == e.leader); s.counted {
		postpone(&s.deadline, e.roundToTick(now.Add(s.timeout)))
	}
}

// report accounts for the ping that has reported the activity of s, if it was sent by now.
func (e *ensemble) report(s *session) {
	if s.pending == nil || !s.pending.inTouch() || s.due.After(e.nowLocked()) {
		return
	}
	s.pending = nil
	d := e.roundToTick(s.due.Add(s.timeout))
	postpone(&s.reported, d)
	if !s.counted {
		postpone(&s.deadline, d)
	}
}

// inTouch reports whether the leader receives what the server of c tells it.
func (c *conn) inTouch() bool {
	s := c.srv
	alone := c.view != nil && c.view != s.view // as if c had a separate server
	return !s.cut && !s.paused && !s.stopped && c.e.quorum && !alone
}

// settle accounts for all pings until now. It must be called before the result of inTouch
// changes. Activity that a server could not report by now is reported with a later ping.
func (e *ensemble) settle() {
	now := e.nowLocked()
	for _, s := range e.sessions {
		if e.report(s); s.pending != nil && !s.due.After(now) {
			s.due = e.nextPing(now)
		}
	}
}

// disregard takes from s the activity that the leader would not know if the server of the
// session's client were a follower that was cut off now.
func (e *ensemble) disregard(s *session) {
	s.deadline, s.counted = s.reported, false
	if s.index >= 0 && s.queued.After(s.deadline) {
		s.queued = s.deadline
		heap.Fix(&e.expiry, s.index)
		e.armExpiry()
	}
}

// unlearn forgets the activity that server s has not reported.
func (s *Server) unlearn() {
	for _, x := range s.e.sessions {
		if x.pending != nil && x.pending.srv == s {
			x.pending = nil
		}
	}
}

// touchAll gives every session its whole timeout, as a new leader does.
func (e *ensemble) touchAll() {
	for _, s := range e.sessions {
		e.touch(s)
	}
}
