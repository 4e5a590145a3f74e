package zktest

import (
	"errors"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/zktest/internal/wire"
)

// ErrNoSession is returned if a session does not exist or has expired.
var ErrNoSession = errors.New("zktest: no such session")

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

// apply sets the faults of c; the caller holds e.mu and kicks c when done.
func (c *conn) apply(f connFaults) {
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

// chosen lists the connections that a fault is for: those of the given sessions,
// or all. The caller holds e.mu.
func (s *Server) chosen(sessions []int64) []*conn {
	all := s.connections()
	if len(sessions) == 0 {
		return all
	}
	return slices.DeleteFunc(all, func(c *conn) bool {
		return c.sess == nil || !slices.Contains(sessions, c.sess.id)
	})
}

// alter changes the faults of the chosen connections and lets flow what may.
func (s *Server) alter(sessions []int64, f func(*connFaults)) {
	s.e.mu.Lock()
	if len(sessions) == 0 {
		f(&s.faults)
	}
	conns := s.chosen(sessions)
	for _, c := range conns {
		next := c.faults
		f(&next)
		c.apply(next)
	}
	s.kickLocked(conns)
	s.e.mu.Unlock()
}

// kickLocked goes on with the connections, on a goroutine of its own because
// hooks may run.
func (s *Server) kickLocked(conns []*conn) {
	s.e.goLocked(func() {
		for _, c := range conns {
			c.kick()
		}
	})
}

// ExpireSession expires a session as if its timeout had passed: its ephemeral znodes are
// deleted in one transaction, watches fire, and its connection is closed. If the client
// is cut off at that moment, it is not notified. The error is [ErrNoSession].
func (s *Server) ExpireSession(id int64) error {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	x := s.e.sessions[id]
	if x == nil || s.e.closed {
		return ErrNoSession
	}
	s.e.endSession(x, false)
	return nil
}

// DropConnections immediately closes the connections of the given sessions, or all
// connections of this server; packets in transit are lost. The sessions continue. It
// returns the number of connections that it closed.
func (s *Server) DropConnections(sessions ...int64) int {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	conns := s.chosen(sessions)
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

func (s *Server) adjustListener() {
	s.e.mu.Lock()
	down := s.refuses || s.stopped || s.e.closed
	s.e.mu.Unlock()
	if down {
		s.stopListening()
	} else {
		s.reopen()
	}
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
	s.alter(sessions, func(f *connFaults) { f.black |= dir })
}

// Delay makes every packet in the given direction take d longer, in real time even with
// [WithManualClock]. It applies to the connections that the given sessions have at this
// moment; without sessions, it applies to all connections of this server, including new
// ones. If d is 0, the delay ends.
func (s *Server) Delay(dir Direction, d time.Duration, sessions ...int64) {
	s.alter(sessions, func(f *connFaults) {
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
	s.alter(sessions, func(f *connFaults) { *f = connFaults{} })
	s.rejoin(sessions)
}

// Pause freezes the server as SIGSTOP freezes a process: it accepts connections, but
// reads and answers nothing. If it is not part of an ensemble, it expires no session.
func (s *Server) Pause() {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.e.settle()
	s.paused = true
	for _, c := range s.connections() {
		c.setPause(true)
	}
	s.e.membershipLocked()
}

// Resume ends [Server.Pause]. The server first processes the packets that have arrived
// during the pause, in an ensemble from the state before the pause; then it expires the
// sessions that are due. Resume returns when that is complete, including hooks, so a hook
// must not wait for the caller of Resume.
func (s *Server) Resume() {
	s.e.mu.Lock()
	s.e.settle()
	s.paused = false
	conns := s.connections()
	for _, c := range conns {
		c.setPause(false)
	}
	s.e.mu.Unlock()
	for _, c := range conns {
		c.kick()
	}
	s.e.mu.Lock()
	s.e.membershipLocked()
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
	s.e.settle()
	s.stopped = true
	s.unlearn()
	for _, c := range s.connections() {
		c.abort()
	}
	s.e.membershipLocked()
	s.e.mu.Unlock()
	s.adjustListener()
}

// SetSequence sets the sequence number of the next sequential child of parent. It returns
// "no node" if parent does not exist.
//
// The counter overflows after 2147483647 as on a 3.8 server: it repeats this number, but
// continues with -2147483648 within a multi. A real server also continues with
// -2147483648 while requests overlap, and releases before 3.6 always did; to test that,
// set n to -2147483648.
func (s *Server) SetSequence(parent string, n int32) error {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	p := s.e.tree.nodes[parent]
	if p == nil {
		return codeNoNode
	}
	if !s.e.closed {
		p.cversion = n
	}
	return nil
}

// Sweep immediately deletes containers whose last child was deleted and TTL nodes that
// have expired. It returns the number of deleted znodes.
func (s *Server) Sweep() int {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if s.e.closed {
		return 0
	}
	return s.e.sweep()
}

// sweep deletes what containers and TTL nodes are due.
func (e *ensemble) sweep() int {
	now := e.nowLocked().UnixMilli()
	var due []string
	for p := range e.tree.expires {
		n := e.tree.nodes[p]
		if len(n.kids) == 0 && (n.kind == container && n.cversion > 0 || n.kind == ttlNode && now-n.mtime > n.ttl) {
			due = append(due, p)
		}
	}
	slices.Sort(due)
	for _, p := range due {
		t := e.begin()
		t.add(change{kind: changeDelete, op: wire.DeleteContainer, path: p})
		e.commit(t)
		e.record(Entry{Op: OpDeleteContainer, Path: p, Zxid: t.zxid})
	}
	return len(due)
}

// armSweep starts the timer for the next sweep, if there is anything to look at.
func (e *ensemble) armSweep() {
	if e.stopSweep != nil || e.closed || len(e.tree.expires) == 0 || e.cfg.sweep <= 0 {
		return
	}
	e.stopSweep = e.timer(e.cfg.sweep, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.stopSweep = nil
		if !e.closed && e.quorum {
			e.sweep()
		}
		e.armSweep()
	})
}
