package zktest

import "slices"

// updateMembershipLocked determines which servers reach a quorum, after the state of a server has
// changed, and applies the consequences.
func (e *ensemble) updateMembershipLocked() {
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
		// A partition does not matter here: a single server that is partitioned acts as a follower of
		// servers that do not exist.
		e.quorum = !e.servers[0].paused && !e.servers[0].stopped
	} else {
		e.quorum = 2*up > len(e.servers)
	}
	elected := false
	if len(e.servers) > 1 && e.quorum {
		l := e.servers[e.leader]
		if !had || l.cut || l.paused || l.stopped {
			elected = e.electLeader()
		}
	}
	for _, s := range e.servers {
		if len(e.servers) == 1 {
			break
		}
		// A stopped server needs no view, because it has the current state when it starts again.
		if s.id == e.leader {
			s.lags, s.lagBy = false, 0
		}
		behind := (s.cut || s.paused || s.lags || !e.quorum) && !s.stopped
		switch {
		case behind && s.view == nil:
			s.startView()
			if !s.lags {
				s.startSyncTimer()
			}
		case !behind && s.view != nil:
			s.endView()
		}
		// Only stopped servers count as lost, which the others detect immediately, because their
		// connections are closed. They do not detect that a server is cut off or paused.
		if behind && !s.cut && !s.paused && 2*alive <= len(e.servers) {
			s.disconnectClients()
		}
	}
	for _, s := range e.servers {
		s.startLagTimer()
	}
	e.updateCutOff()
	if elected {
		e.extendAllSessions()
	}
	if had != e.quorum {
		if e.stopExpiry != nil {
			e.stopExpiry()
			e.stopExpiry = nil
		}
		e.startExpiryTimer()
	}
}

// electLeader makes the healthy server with the greatest number the leader of a new epoch. As in a
// real ensemble, the clients of the servers that vote are disconnected.
func (e *ensemble) electLeader() bool {
	for i := len(e.servers) - 1; i >= 0; i-- {
		if s := e.servers[i]; !s.cut && !s.paused && !s.stopped {
			e.leader = i
			break
		}
	}
	e.zxid = (e.zxid>>32 + 1) << 32
	e.tree.zxid = e.zxid // the new leader reports this zxid before its first transaction
	e.queueForViews(&txn{zxid: e.zxid, at: e.nowLocked()})
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

// isCutOff reports whether the requests of c cannot reach the quorum. The caller holds e.mu.
func (c *conn) isCutOff() bool {
	s := c.srv
	return c.view != nil && !(c.view == s.view && s.lags && !s.cut && !s.paused && s.e.quorum)
}

// updateCutOff determines, after a change of the servers, which connections are cut off, and continues
// to process the requests of connections that are not cut off any more.
func (e *ensemble) updateCutOff() {
	for _, s := range e.servers {
		var free []*conn
		for _, c := range s.connections() {
			if was := c.isCut.Swap(c.isCutOff()); was && !c.isCut.Load() {
				c.clearHold(holdStall)
				free = append(free, c)
			}
		}
		if len(free) > 0 {
			s.processQueuesLocked(free)
		}
	}
}

// startSyncTimer disconnects the clients if the server does not catch up within the sync limit.
func (s *Server) startSyncTimer() {
	v := s.view
	if s.e.cfg.syncLimit <= 0 || s.e.closed {
		return
	}
	s.stopSync = s.e.startTimer(s.e.cfg.syncLimit, func() {
		s.e.mu.Lock()
		defer s.e.mu.Unlock()
		if s.view == v && !s.e.closed && !s.paused {
			s.disconnectClients()
		}
	})
}

// disconnectClients closes all connections, and rejects new ones until the server is healed.
func (s *Server) disconnectClients() {
	s.rejectsClients = true
	s.forgetUnreported()
	for _, c := range s.connections() {
		c.abort()
	}
}

// startView makes the server and its connections read from a separate view.
func (s *Server) startView() {
	s.view = s.e.newView(s)
	for _, c := range s.connections() {
		if c.view == nil {
			c.setView(s.view)
		}
	}
}

func (s *Server) endView() {
	if s.stopSync != nil {
		s.stopSync()
		s.stopSync = nil
	}
	s.stopLagTimer()
	s.rejectsClients = false
	v := s.view
	s.view, v.server = nil, nil
	if v.conns == 0 {
		s.e.dropView(v)
	}
	// Omit connections with a separate view, which they keep.
	s.catchUp(slices.DeleteFunc(s.connections(), func(c *conn) bool { return c.view != v }))
}

// healServers ends all faults, so that waiting requests can end.
func (e *ensemble) healServers() {
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
