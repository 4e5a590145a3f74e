package zktest

import (
	"errors"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/zktest/internal/wire"
)

// ErrNoSession reports a session that does not exist, or not any more.
var ErrNoSession = errors.New("zktest: no such session")

// Direction is one way of a connection, or both.
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

// ExpireSession ends a session as if its time were over: what it owns is deleted
// in one transaction, watches fire, and its connection is closed. If nothing
// reaches its client at the moment, nothing tells the client either.
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

// DropConnections closes the connections of the given sessions, or all of this
// server, at once: what is on its way is lost. The sessions live on. It returns
// how many connections it closed.
func (s *Server) DropConnections(sessions ...int64) int {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	conns := s.chosen(sessions)
	for _, c := range conns {
		c.abort()
	}
	return len(conns)
}

// Refuse makes the server refuse connections that are made from now on, or accept
// them again. Those that exist stay.
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

// Blackhole stops everything in the given direction, silently: on the connections
// that the given sessions have at this moment, or on all of this server and those to
// come. Nobody is told, also not when one end closes the connection. As with a
// network that loses packets nothing is lost for good: [Server.Heal] lets through
// what was sent meanwhile, if the connection still exists.
//
// A client whose one connection is stopped notices in time and makes another one,
// which is a good one. To keep it out set a hook too:
//
//	srv.Before(zktest.Match{Op: zktest.OpConnect, Session: id}, zktest.Cut)
func (s *Server) Blackhole(dir Direction, sessions ...int64) {
	s.alter(sessions, func(f *connFaults) { f.black |= dir })
}

// Delay makes every packet in the given direction take d longer, of real time also
// with [WithManualClock]: on the connections that the given sessions have at this
// moment, or on all of this server and those to come. d = 0 ends it.
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

// Heal ends the faults that [Server.Blackhole], [Server.Delay], [Server.Partition]
// and [Server.Lag] made: for the given sessions, or all of this server.
func (s *Server) Heal(sessions ...int64) {
	s.alter(sessions, func(f *connFaults) { *f = connFaults{} })
	s.rejoin(sessions)
}

// Pause freezes the server as SIGSTOP does a process: it accepts connections and
// reads nothing, answers nothing and, if it is alone, ends no session.
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

// Resume ends [Server.Pause]. What was sent meanwhile is dealt with first, by a
// server of an ensemble from the state before the pause; then the sessions end
// whose time is over. It returns when that is done, hooks included, so a hook must
// not wait for its caller.
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

// Stop takes the server down as a crash does: its connections end and new ones
// are refused. [Server.Restart] brings it back.
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

// SetSequence sets the number that the next sequential child of parent gets.
//
// The counter overflows after 2147483647 as that of a 3.8 server does: it gives this
// number again and again, but goes on with -2147483648 within a multi. A real one
// also goes on for as long as requests overlap, and releases before 3.6 always did;
// for that set n to -2147483648.
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

// Sweep deletes containers that have lost their last child and TTL nodes that are
// too old, now. It returns how many.
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
