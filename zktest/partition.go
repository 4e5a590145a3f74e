package zktest

import "slices"

// Partition cuts this server off from the rest of the ensemble, while its clients still
// reach it: they read the state of this moment, pings are answered, and the first write
// stalls together with all requests after it. Their sessions are not extended any more
// and expire on the majority side, where other clients observe that the ephemeral znodes
// are deleted. Connections made later stall as well.
//
// If sessions are given, only their current connections are cut off, as if these clients were
// connected to a separate server; connections that they make later are not affected. With sessions,
// a test of a stale reader needs only one server. The separate server behaves like a follower that
// has not reported the latest packets of its clients; see [StartEnsemble]. The same applies to a
// server without an ensemble that is partitioned as a whole. If the server lags, is paused or is cut
// off itself, the sessions read the state that the server has at this moment. [WithSyncLimit] does
// not apply to partitions of sessions.
//
// A real follower closes its clients' connections after a limit; [WithSyncLimit] sets one
// for this server. [Server.Heal] ends the partition: missed changes arrive in order, with
// their watch events. Then stalled writes continue, or the connection is closed if its
// session has expired.
func (s *Server) Partition(sessions ...int64) {
	e := s.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	e.applyReports()
	if len(sessions) == 0 {
		s.cut = true
		if s.lags {
			s.lags, s.lagBy = false, 0
			s.startSyncTimer()
		}
		e.updateMembershipLocked()
		if s.view == nil && len(e.servers) == 1 {
			s.startView()
			s.startSyncTimer()
			for _, x := range e.sessions {
				e.useReportedDeadline(x)
			}
		}
		e.updateCutOff()
		return
	}
	var v *view
	for _, c := range s.connsOf(sessions) {
		if c.view != s.view {
			continue // skip a connection that an earlier call has cut off
		}
		if v == nil {
			v = s.newSeparateView()
		}
		c.setView(v)
		e.useReportedDeadline(c.sess)
	}
}

// healPartition ends the partition of the server, or of the connections of the given sessions.
func (s *Server) healPartition(sessions []int64) {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.e.applyReports()
	if len(sessions) == 0 {
		s.cut, s.lags, s.lagBy = false, false, 0
		s.e.updateMembershipLocked()
		if s.view != nil && len(s.e.servers) == 1 {
			s.endView()
		}
	}
	s.catchUp(s.connsOf(sessions))
}

// catchUp makes connections that have a view of their own read the state of their server again,
// after they have received the events that they have missed. This is the current state, unless the
// server is cut off as well.
func (s *Server) catchUp(conns []*conn) {
	e := s.e
	for {
		i := slices.IndexFunc(conns, func(c *conn) bool { return c.view != nil && c.view != s.view })
		if i < 0 {
			break
		}
		v := conns[i].view
		old := &view{tree: v.tree, missed: v.missed}
		stay := false // reports that connections that are not in conns still read from this view
		for _, c := range s.connsOfView(v) {
			if slices.Contains(conns, c) {
				c.setView(old)
			} else {
				stay = true
			}
		}
		if stay {
			old.tree = v.tree.clone()
		}
		ended := e.advanceView(old, func(t *txn) bool { return s.view == nil || t.zxid <= s.view.tree.zxid })
		for _, c := range conns {
			if c.view != old {
				continue
			}
			if c.setView(s.view); c.view != nil {
				// Close the connection of a session that has ended, as a server does when it applies the
				// transaction closeSession.
				if c.sess != nil && ended[c.sess] {
					c.closeWhenSent()
				}
				continue
			}
			if c.sess != nil && (e.sessions[c.sess.id] != c.sess || c.sess.conn != c) {
				c.closeWhenSent()
			}
		}
	}
	for _, c := range conns {
		if !c.isCutOff() {
			c.clearHold(holdStall)
		}
	}
	s.processQueuesLocked(conns)
}
