package zktest

import "slices"

// updateMembershipLocked must be called after the state of a server has changed. It determines
// whether there is a quorum and which servers reach it, elects a leader if necessary, and starts or
// ends the views of servers.
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
		// Ignore a partition here, because a single server that is partitioned acts as a follower of servers that
		// do not exist.
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
		if s.id == e.leader {
			s.lags, s.lagBy = false, 0
		}
		// A stopped server needs no view, because the server reads the current state when it starts again.
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
		// Count only stopped servers as lost: the other servers detect a stopped server immediately,
		// because its connections are closed, and they do not detect that a server is cut off or
		// paused.
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
// real ensemble, the servers that vote disconnect their clients.
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

// isCutOff reports whether requests over the connection c cannot reach the quorum. The caller holds
// e.mu.
func (c *conn) isCutOff() bool {
	s := c.srv
	return c.view != nil && !(c.view == s.view && s.lags && !s.cut && !s.paused && s.e.quorum)
}

// updateCutOff must be called after the state of a server has changed. It updates isCut of all connections, and
// continues to process the requests of connections that are not cut off any more.
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

// startSyncTimer starts a timer that disconnects the clients if the server does not catch up within
// the time of WithSyncLimit.
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

// disconnectClients closes all connections of clients, and makes the server reject new ones until
// its view ends.
func (s *Server) disconnectClients() {
	s.rejectsClients = true
	s.forgetUnreported()
	for _, c := range s.connections() {
		c.abort()
	}
}

// startView makes the server and its connections read from a view, which keeps the state of this
// moment.
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
	// Omit connections with another view, because a partition of their own continues.
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
