package zktest

import (
	"slices"
	"time"
)

// Direction is one direction of a connection, or both.
type Direction uint8

// The directions of a connection.
const (
	ToServer Direction = 1 << iota
	ToClient
	BothWays = ToServer | ToClient
)

// connFaults are the faults of the network between a client and its server.
type connFaults struct {
	black             Direction
	delayIn, delayOut time.Duration
}

// setFaults sets the faults of c. The caller holds e.mu, and must call processQueue after it has
// released the lock.
func (c *conn) setFaults(f connFaults) {
	c.mu.Lock()
	defer c.mu.Unlock()
	set := func(hold *uint8, on bool) {
		if *hold &^= holdFault; on {
			*hold |= holdFault
		}
	}
	set(&c.inHold, f.black&ToServer != 0)
	set(&c.outHold, f.black&ToClient != 0)
	c.inDelay, c.outDelay = f.delayIn, f.delayOut
	c.faults = f
	c.changed.Broadcast()
}

// connsOf returns the connections of the given sessions, or all connections of the server. The
// caller holds e.mu.
func (s *Server) connsOf(sessions []int64) []*conn {
	all := s.connections()
	if len(sessions) == 0 {
		return all
	}
	return slices.DeleteFunc(all, func(c *conn) bool {
		return c.sess == nil || !slices.Contains(sessions, c.sess.id)
	})
}

// changeFaults changes the faults of connections by f, and continues to process the packets of
// connections that no fault stops any more.
func (s *Server) changeFaults(sessions []int64, f func(*connFaults)) {
	s.e.mu.Lock()
	if len(sessions) == 0 {
		f(&s.faults)
	}
	conns := s.connsOf(sessions)
	for _, c := range conns {
		next := c.faults
		f(&next)
		c.setFaults(next)
	}
	s.processQueuesLocked(conns)
	s.e.mu.Unlock()
}

// processQueuesLocked continues to process the requests of the connections, in a separate goroutine
// because hooks may run.
func (s *Server) processQueuesLocked(conns []*conn) {
	s.e.goLocked(func() {
		for _, c := range conns {
			c.processQueue()
		}
	})
}

// DropConnections immediately closes the connections of the given sessions, or all
// connections of this server; packets in transit are lost. The sessions continue. It
// returns the number of connections that it closed.
func (s *Server) DropConnections(sessions ...int64) int {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	conns := s.connsOf(sessions)
	for _, c := range conns {
		c.abort()
	}
	return len(conns)
}

// Refuse makes the server refuse new connections, or accept them again. Existing
// connections remain.
func (s *Server) Refuse(on bool) {
	s.e.mu.Lock()
	s.refuses = on
	s.e.mu.Unlock()
	s.adjustListener()
}

// Blackhole silently stops all packets in the given direction. It applies to the
// connections that the given sessions have at this moment; without sessions, it applies
// to all connections of this server, including new ones. Neither side is notified, even
// if the other side closes the connection. No packet is lost: [Server.Heal] delivers them
// if the connection still exists.
//
// A client whose only connection is stopped detects that after a timeout and opens
// another connection, which works. To prevent it from connecting, set a hook as well:
//
//	srv.Before(zktest.Match{Op: zktest.OpConnect, Session: id}, zktest.Cut)
func (s *Server) Blackhole(dir Direction, sessions ...int64) {
	s.changeFaults(sessions, func(f *connFaults) { f.black |= dir })
}

// Delay makes every packet in the given direction take d longer, in real time even with
// [WithManualClock]. It applies to the connections that the given sessions have at this
// moment; without sessions, it applies to all connections of this server, including new
// ones. If d is 0, the delay ends.
func (s *Server) Delay(dir Direction, d time.Duration, sessions ...int64) {
	s.changeFaults(sessions, func(f *connFaults) {
		if dir&ToServer != 0 {
			f.delayIn = d
		}
		if dir&ToClient != 0 {
			f.delayOut = d
		}
	})
}

// Heal ends the faults that [Server.Blackhole], [Server.Delay], [Server.Partition] and
// [Server.Lag] have injected, for the given sessions or for all of this server.
func (s *Server) Heal(sessions ...int64) {
	s.changeFaults(sessions, func(f *connFaults) { *f = connFaults{} })
	s.healPartition(sessions)
}
