package zktest

// Loss indicates which data a restart loses.
type Loss uint8

const (
	// KeepTree restarts with the same tree, sessions and ephemeral nodes. Sessions
	// receive their whole timeout again.
	KeepTree Loss = iota
	// LoseTree restarts with an empty tree and without sessions. Zxids continue, so
	// existing clients can reconnect, and are notified that their session has expired.
	LoseTree
	// LoseAll also resets the zxids, as if the server's disk was empty or the ensemble
	// was rebuilt. The server then closes the connection of a client that has seen a
	// greater zxid. go-zookeeper's client retries indefinitely, without success and
	// without an event that reports it.
	LoseAll
)

// Restart stops the server if it is running and starts it again, which ends a pause.
// Without an ensemble it also ends a partition. In an ensemble only [KeepTree] is
// possible, because the other servers keep the state; other values panic.
// [Ensemble.Restart] loses the state of all servers.
func (s *Server) Restart(loss Loss) {
	if loss != KeepTree && len(s.e.servers) > 1 {
		panic("zktest: Restart: one server of an ensemble cannot lose data: use Ensemble.Restart")
	}
	s.e.restartServers([]*Server{s}, loss)
}

// Restart stops all servers and starts them again, which ends pauses, partitions and
// lags. With [LoseTree] or [LoseAll] the ensemble restarts empty. After [Ensemble.Close]
// it does nothing.
func (c *Ensemble) Restart(loss Loss) { c.e.restartServers(c.e.servers, loss) }

func (e *ensemble) restartServers(servers []*Server, loss Loss) {
	for _, s := range servers {
		s.Stop()
	}
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return
	}
	if loss != KeepTree {
		e.resetState(loss == LoseAll)
	}
	e.applyReports()
	for _, s := range servers {
		s.stopped, s.paused, s.lags, s.lagBy = false, false, false, 0
		if len(servers) == len(e.servers) {
			s.cut = false
		}
	}
	if len(e.servers) == 1 {
		if s := e.servers[0]; s.view != nil {
			s.endView()
		}
		e.extendAllSessions()
	}
	e.updateMembershipLocked()
	e.mu.Unlock()
	for _, s := range servers {
		s.adjustListener()
	}
}

// resetState removes the tree and the sessions. If all is true, it also resets the zxid.
func (e *ensemble) resetState(all bool) {
	if all {
		e.zxid = 0
	}
	e.tree = e.emptyTree()
	e.sessions = make(map[int64]*session)
	e.expiry = nil
	e.startExpiryTimer()
}
