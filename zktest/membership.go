package zktest

import "slices"

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

// strand puts the server and its connections on a view of their own.
func (s *Server) strand() {
	s.view = s.e.newView(s)
	for _, c := range s.connections() {
		if c.view == nil {
			c.setView(s.view)
		}
	}
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
