package zktest

// Pause freezes the server as SIGSTOP freezes a process: it accepts connections, but
// reads and answers nothing. If it is not part of an ensemble, it expires no session.
func (s *Server) Pause() {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.e.applyReports()
	s.paused = true
	for _, c := range s.connections() {
		c.setPause(true)
	}
	s.e.updateMembershipLocked()
}

// Resume ends [Server.Pause]. The server first processes the packets that have arrived
// during the pause, in an ensemble from the state before the pause; then it expires the
// sessions that are due. Resume returns when that is complete, including hooks, so a hook
// must not wait for the caller of Resume.
func (s *Server) Resume() {
	s.e.mu.Lock()
	s.e.applyReports()
	s.paused = false
	conns := s.connections()
	for _, c := range conns {
		c.setPause(false)
	}
	s.e.mu.Unlock()
	for _, c := range conns {
		c.processQueue()
	}
	s.e.mu.Lock()
	s.e.updateMembershipLocked()
	s.e.mu.Unlock()
}

func (c *conn) setPause(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if on {
		c.inHold |= holdPause
		c.outHold |= holdPause
	} else {
		c.inHold &^= holdPause
		c.outHold &^= holdPause
	}
	c.changed.Broadcast()
}

// Stop stops the server as a crash does: its connections are closed and new ones are
// refused. [Server.Restart] starts it again.
func (s *Server) Stop() {
	s.e.mu.Lock()
	s.e.applyReports()
	s.stopped = true
	s.forgetUnreported()
	for _, c := range s.connections() {
		c.abort()
	}
	s.e.updateMembershipLocked()
	s.e.mu.Unlock()
	s.adjustListener()
}
