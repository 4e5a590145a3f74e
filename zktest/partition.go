package zktest

import "slices"

// Partition cuts this server off from the rest of the ensemble, while its clients still
// reach it: they read the state of this moment, pings are answered, and the first write
// stalls together with all requests after it. Their sessions are not extended any more
// and expire on the majority side, where other clients observe that the ephemeral znodes
// are deleted. Connections made later stall as well.
//
// If sessions are given, only their current connections are cut off, as if these clients
// were connected to a separate server; connections that they make later are not affected.
// With sessions, a test of a stale reader needs only one server. The separate server
// behaves like a follower that has not reported the latest packets of its clients; see
// [Cluster]. The same applies to a server without an ensemble that is partitioned as a
// whole.
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
	e.settle()
	if len(sessions) == 0 {
		s.cut = true
		if s.lags {
			s.lags, s.lagBy = false, 0
			s.armSyncLimit()
		}
		e.membershipLocked()
		if s.view == nil && len(e.servers) == 1 {
			s.strand()
			s.armSyncLimit()
			for _, x := range e.sessions {
				e.disregard(x)
			}
		}
		e.refreshCut()
		return
	}
	var v *view
	for _, c := range s.chosen(sessions) {
		if c.view != nil {
			continue
		}
		if v == nil {
			v = e.newView(nil)
		}
		c.setView(v)
		e.disregard(c.sess)
	}
}

func (e *ensemble) newView(s *Server) *view {
	v := &view{tree: e.tree.clone(), server: s}
	e.views = append(e.views, v)
	return v
}

// strand puts the server and its connections on a view of their own.
func (s *Server) strand() {
	s.view = s.e.newView(s)
	for _, c := range s.connections() {
		if c.view == nil {
			c.setView(s.view)
		}
	}
}

// setView makes c read from v. A view that nobody reads from any more is dropped,
// as it would go on to collect what it misses.
func (c *conn) setView(v *view) {
	if old := c.view; old != nil {
		old.late = slices.DeleteFunc(old.late, func(o *conn) bool { return o == c })
		if old.conns--; old.conns == 0 && old.server == nil {
			c.e.dropView(old)
		}
	}
	if v != nil {
		v.conns++
		if c.late != nil {
			v.late = append(v.late, c)
		}
	}
	c.view = v
	c.isCut.Store(c.cutOff())
}

// cutOff reports whether what c asks for cannot reach the quorum. The caller holds e.mu.
func (c *conn) cutOff() bool {
	s := c.srv
	return c.view != nil && !(c.view == s.view && s.lags && !s.cut && !s.paused && s.e.quorum)
}

// refreshCut works out again, after a change of the servers, which connections are cut
// off, and continues with the requests of those that are not any more.
func (e *ensemble) refreshCut() {
	for _, s := range e.servers {
		var free []*conn
		for _, c := range s.connections() {
			if was := c.isCut.Swap(c.cutOff()); was && !c.isCut.Load() {
				c.unhold(holdStall)
				free = append(free, c)
			}
		}
		if len(free) > 0 {
			s.kickLocked(free)
		}
	}
}

func (e *ensemble) dropView(v *view) {
	e.views = slices.DeleteFunc(e.views, func(o *view) bool { return o == v })
}

// armSyncLimit makes a server that stays behind give up in the end.
func (s *Server) armSyncLimit() {
	v := s.view
	if s.e.cfg.syncLimit <= 0 || s.e.closed {
		return
	}
	s.stopSync = s.e.timer(s.e.cfg.syncLimit, func() {
		s.e.mu.Lock()
		defer s.e.mu.Unlock()
		if s.view == v && !s.e.closed && !s.paused {
			s.giveUp()
		}
	})
}

// giveUp sends the clients away, and those that come, until the server is healed.
func (s *Server) giveUp() {
	s.gaveUp = true
	s.unlearn()
	for _, c := range s.connections() {
		c.abort()
	}
}

// rejoin ends partitions: of the server, or of the connections of some sessions.
func (s *Server) rejoin(sessions []int64) {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.e.settle()
	if len(sessions) == 0 {
		s.cut, s.lags, s.lagBy = false, false, 0
		s.e.membershipLocked()
		if s.view != nil && len(s.e.servers) == 1 {
			s.unstrand()
		}
	}
	s.catchUp(s.chosen(sessions))
}

func (s *Server) unstrand() {
	if s.stopSync != nil {
		s.stopSync()
		s.stopSync = nil
	}
	s.stopLagging()
	s.gaveUp = false
	v := s.view
	s.view, v.server = nil, nil
	if v.conns == 0 {
		s.e.dropView(v)
	}
	// Those that were cut off on their own stay so.
	s.catchUp(slices.DeleteFunc(s.connections(), func(c *conn) bool { return c.view != v }))
}

// catchUp brings connections to what their server knows, view by view: the
// present, unless the server is cut off as a whole.
func (s *Server) catchUp(conns []*conn) {
	e := s.e
	for {
		i := slices.IndexFunc(conns, func(c *conn) bool { return c.view != nil && c.view != s.view })
		if i < 0 {
			break
		}
		v := conns[i].view
		old := &view{tree: v.tree, missed: v.missed}
		stay := false // others stay behind in this view
		for _, c := range s.allOf(v) {
			if slices.Contains(conns, c) {
				c.setView(old)
			} else {
				stay = true
			}
		}
		if stay {
			old.tree = v.tree.clone()
		}
		ended := e.advance(old, func(t *txn) bool { return s.view == nil || t.zxid <= s.view.tree.zxid })
		for _, c := range conns {
			if c.view != old {
				continue
			}
			if c.setView(s.view); c.view != nil {
				// Its server closes the connection when it applies the session's end.
				if c.sess != nil && ended[c.sess] {
					c.hangUp()
				}
				continue
			}
			if c.sess != nil && (e.sessions[c.sess.id] != c.sess || c.sess.conn != c) {
				c.hangUp()
			}
		}
	}
	for _, c := range conns {
		if !c.cutOff() {
			c.unhold(holdStall)
		}
	}
	s.kickLocked(conns)
}

func (s *Server) allOf(v *view) []*conn {
	var out []*conn
	for _, o := range s.e.servers {
		for _, c := range o.connections() {
			if c.view == v {
				out = append(out, c)
			}
		}
	}
	return out
}

// membershipLocked works out which servers can reach a quorum, and what follows.
func (e *ensemble) membershipLocked() {
	if e.closed {
		return
	}
	up, alive := 0, 0
	for _, s := range e.servers {
		if !s.cut && !s.paused && !s.stopped {
			up++
		}
		if !s.stopped {
			alive++
		}
	}
	had := e.quorum
	if len(e.servers) == 1 {
		// A lone server that is partitioned is a follower of others that are not shown.
		e.quorum = !e.servers[0].paused && !e.servers[0].stopped
	} else {
		e.quorum = 2*up > len(e.servers)
	}
	elected := false
	if len(e.servers) > 1 && e.quorum {
		l := e.servers[e.leader]
		if !had || l.cut || l.paused || l.stopped {
			elected = e.elect()
		}
	}
	for _, s := range e.servers {
		if len(e.servers) == 1 {
			break
		}
		// One that is down reads the present when it comes back.
		if s.id == e.leader {
			s.lags, s.lagBy = false, 0
		}
		behind := (s.cut || s.paused || s.lags || !e.quorum) && !s.stopped
		switch {
		case behind && s.view == nil:
			s.strand()
			if !s.lags {
				s.armSyncLimit()
			}
		case !behind && s.view != nil:
			s.unstrand()
		}
		// The end of a server shows at once, since its connections to the others
		// close; the silence of one that is cut off or paused does not.
		if behind && !s.cut && !s.paused && 2*alive <= len(e.servers) {
			s.giveUp()
		}
	}
	for _, s := range e.servers {
		s.armLag()
	}
	e.refreshCut()
	if elected {
		e.touchAll()
	}
	if had != e.quorum {
		if e.stopExpiry != nil {
			e.stopExpiry()
			e.stopExpiry = nil
		}
		e.armExpiry()
	}
}

// elect makes the largest healthy server the leader of a new epoch. As with the
// real servers the clients of those that take part are disconnected.
func (e *ensemble) elect() bool {
	for i := len(e.servers) - 1; i >= 0; i-- {
		if s := e.servers[i]; !s.cut && !s.paused && !s.stopped {
			e.leader = i
			break
		}
	}
	e.zxid = (e.zxid>>32 + 1) << 32
	e.tree.zxid = e.zxid // which the new leader reports before its first transaction
	e.leaveBehind(&txn{zxid: e.zxid, at: e.nowLocked()})
	for _, s := range e.servers {
		if s.cut || s.paused || s.stopped {
			continue
		}
		for _, c := range s.connections() {
			c.abort()
		}
	}
	return true
}

// healAll ends every fault, so that what waits can end in order.
func (e *ensemble) healAll() {
	for _, s := range e.servers {
		s.Heal()
		s.e.mu.Lock()
		paused := s.paused
		s.e.mu.Unlock()
		if paused {
			s.Resume()
		}
	}
}
