package zktest

import (
	"slices"
	"time"
)

// Lag makes this server fall behind the other servers while it stays connected to them:
// its clients read the state of this moment until [Server.Heal]. Their writes are
// applied, and other servers show them. However, as on a real follower that commits late,
// a write, a sync and the start of a session are answered only when this server has
// caught up with them. Sessions continue, and a client that has not seen a later state
// may reconnect to this server. The leader of an ensemble cannot lag; a server without an
// ensemble behaves like a follower of servers that are not visible.
func (s *Server) Lag() { s.startLag(0) }

// LagBy is like [Server.Lag] for a server that is d behind: it applies each transaction d
// later than the other servers, in the server's time, until [Server.Heal]. It panics
// unless d is positive.
func (s *Server) LagBy(d time.Duration) {
	if d <= 0 {
		panic("zktest: LagBy: the duration must be positive")
	}
	s.startLag(d)
}

func (s *Server) startLag(d time.Duration) {
	e := s.e
	e.mu.Lock()
	defer e.mu.Unlock()
	s.lags, s.lagBy = true, d
	e.updateMembershipLocked()
	if s.view == nil && len(e.servers) == 1 {
		s.startView()
	}
	s.startLagTimer()
}

// startLagTimer starts the timer for the next transaction that a server with LagBy applies late.
func (s *Server) startLagTimer() {
	e, v := s.e, s.view
	s.stopLagTimer()
	if s.lagBy <= 0 || v == nil || len(v.missed) == 0 || s.cut || s.paused || e.closed {
		return
	}
	due := v.missed[0].at.Add(s.lagBy)
	s.stopLag = e.startTimer(due.Sub(e.nowLocked()), func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.closed || s.view != v || s.lagBy <= 0 || s.cut || s.paused {
			return
		}
		now := e.nowLocked()
		ended := e.advanceView(v, func(t *txn) bool { return !t.at.Add(s.lagBy).After(now) })
		for _, c := range s.connections() {
			if c.view == v && c.sess != nil && ended[c.sess] {
				c.closeWhenSent()
			}
		}
		s.startLagTimer()
	})
}

func (s *Server) stopLagTimer() {
	if s.stopLag != nil {
		s.stopLag()
		s.stopLag = nil
	}
}

// lateReply is the reply to a request that the ensemble has applied, and the lagging server of the
// connection has not applied yet. Later requests of the connection wait until the reply is sent.
type lateReply struct {
	zxid   int64
	reply  []byte
	hangUp bool
}

// isLate reports whether the server of c has not applied the transaction zxid yet, so that the reply
// to the transaction's request must wait.
func (c *conn) isLate(zxid int64) bool { return c.view != nil && zxid > c.view.tree.zxid }

// sendWhenCaughtUp sends the reply a as soon as the server of c has applied the transaction of the
// request. The caller holds e.mu, and c must not process a request at the same time.
func (c *conn) sendWhenCaughtUp(a lateReply) {
	if c.detached {
		return
	}
	c.late = &a
	if !c.isLate(a.zxid) {
		c.sendLateReply()
		return
	}
	c.view.late = append(c.view.late, c)
	c.mu.Lock()
	c.inHold |= holdReply
	c.mu.Unlock()
}

// sendLateReply sends the reply that waits in c.late.
func (c *conn) sendLateReply() {
	a := c.late
	c.late = nil
	if c.view != nil {
		c.view.late = slices.DeleteFunc(c.view.late, func(o *conn) bool { return o == c })
	}
	c.send(a.reply)
	if a.hangUp {
		c.closeWhenSent()
	}
	c.clearHold(holdReply)
	c.srv.processQueuesLocked([]*conn{c})
}
