package zktest

// What a server or an ensemble loses when it restarts.

// Loss is what a restart loses.
type Loss uint8

const (
	// KeepTree restarts with the same tree, sessions and ephemeral nodes. Sessions
	// get their whole timeout again.
	KeepTree Loss = iota
	// LoseTree restarts with an empty tree and no sessions. Transaction numbers
	// continue, so earlier clients can connect, and learn that their session has
	// expired.
	LoseTree
	// LoseAll also resets the transaction numbers, as a server with an empty disk and
	// an ensemble that was rebuilt do. The server then closes the connection of a
	// client that has seen a higher number; go-zookeeper's client tries again and
	// again, without success and without an event that reports it.
	LoseAll
)

// Restart stops the server if it runs, and starts it again, which ends a pause and,
// of a server that is alone, a partition. In an ensemble only [KeepTree] is
// possible, as the others have the state; anything else panics. [Ensemble.Restart]
// loses the state of all servers.
func (s *Server) Restart(loss Loss) {
	if loss != KeepTree && len(s.e.servers) > 1 {
		panic("zktest: a server of an ensemble cannot lose the tree: use Ensemble.Restart")
	}
	s.e.restart([]*Server{s}, loss)
}

// Restart stops all servers and starts them again, which ends pauses, partitions and
// lags. With [LoseTree] or [LoseAll] the ensemble returns empty. It can be called from
// any goroutine; after [Ensemble.Close] it does nothing.
func (c *Ensemble) Restart(loss Loss) { c.e.restart(c.e.servers, loss) }

func (e *ensemble) restart(servers []*Server, loss Loss) {
	for _, s := range servers {
		s.Stop()
	}
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return
	}
	if loss != KeepTree {
		e.wipe(loss == LoseAll)
	}
	e.settle()
	for _, s := range servers {
		s.stopped, s.paused, s.lags, s.lagBy = false, false, false, 0
		if len(servers) == len(e.servers) {
			s.cut = false
		}
	}
	if len(e.servers) == 1 {
		if s := e.servers[0]; s.view != nil {
			s.unstrand()
		}
		e.touchAll()
	}
	e.membershipLocked()
	e.mu.Unlock()
	for _, s := range servers {
		s.adjustListener()
	}
}

// wipe forgets the tree and the sessions, and with all the transaction numbers as well.
func (e *ensemble) wipe(all bool) {
	if all {
		e.zxid = 0
	}
	e.tree = e.emptyTree()
	e.sessions = make(map[int64]*session)
	e.expiry = nil
	e.armExpiry()
}
