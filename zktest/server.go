package zktest

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"
)

// TB is the part of testing.TB that [Start] and [Cluster] need.
type TB interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Server is one ZooKeeper server. Its methods may be called from any goroutine,
// also from hooks. After [Server.Close] they do nothing, and what they return is
// the state at the end.
type Server struct {
	e  *ensemble
	id int
	t  TB

	// Guarded by e.mu.
	conns    map[*conn]struct{}
	view     *view         // what its clients read while it is cut off or lags
	cut      bool          // Partition
	lags     bool          // Lag
	lagBy    time.Duration // LagBy; 0 until healed
	stopLag  func()        // the timer for it
	paused   bool
	stopped  bool
	refuses  bool
	gaveUp   bool       // see WithSyncLimit
	stopSync func()     // the timer for it
	faults   connFaults // for connections to come
	bound    string     // addr, for those who hold e.mu

	lnMu sync.Mutex
	ln   net.Listener
	addr string // once listened on
}

// Start starts a server that is closed when the test ends. A setting that makes
// no sense fails the test. In a synctest bubble call it inside of the bubble.
func Start(t TB, opts ...Option) *Server {
	t.Helper()
	s, err := New(opts...)
	if err != nil {
		t.Fatalf("%v", err)
		return nil
	}
	s.t = t
	t.Cleanup(s.Close)
	return s
}

// New starts a server outside of a test. Close it when done.
func New(opts ...Option) (*Server, error) {
	e, err := newEnsemble(1, opts)
	if err != nil {
		return nil, err
	}
	return e.servers[0], nil
}

// Close closes the connections that [Server.Connect] made, ends every other one,
// and waits until nothing of the server runs any more, hooks that are under way
// included. It closes all servers of an ensemble. Calling it again does nothing.
func (s *Server) Close() { s.e.close() }

// Name is the server's name for [Server.Dialer], "zk1:2181" for example. No
// network knows it.
func (s *Server) Name() string { return fmt.Sprintf("zk%d:2181", s.id+1) }

// ID is the number of the server in its ensemble, from 0.
func (s *Server) ID() int { return s.id }

// Addr is the TCP address for clients that cannot use [Server.Dialer], on the loopback
// interface unless [WithAddr] sets it. The first call opens the port, in an ensemble the
// ports of all servers. A test in a synctest bubble must not call it, because a bubble has
// no real network. A failure to listen fails the test, or panics outside of one;
// [Server.Listen] returns it.
func (s *Server) Addr() string {
	addr, err := s.Listen()
	if err != nil {
		s.fail(err)
	}
	return addr
}

// Listen opens the TCP port, unless it is open, and returns its address. In an ensemble it
// opens the ports of all servers, because /zookeeper/config lists them.
func (s *Server) Listen() (string, error) {
	for _, x := range s.e.servers {
		if err := x.listen(); err != nil {
			return "", err
		}
		x.adjustListener() // it may be stopped
	}
	return s.tcpAddr(), nil
}

func (s *Server) listen() error {
	s.lnMu.Lock()
	defer s.lnMu.Unlock()
	if s.addr != "" {
		return nil
	}
	want := "127.0.0.1:0"
	if s.id < len(s.e.cfg.addrs) {
		want = s.e.cfg.addrs[s.id]
	}
	return s.listenLocked(want)
}

func (s *Server) listenLocked(addr string) error {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if s.e.closed {
		return net.ErrClosed
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("zktest: %w", err)
	}
	s.ln, s.addr = ln, ln.Addr().String()
	s.bind(s.addr)
	s.e.goLocked(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			if err := s.accept(nc); err != nil {
				nc.Close()
			}
		}
	})
	return nil
}

func (s *Server) stopListening() {
	s.lnMu.Lock()
	defer s.lnMu.Unlock()
	if s.ln != nil {
		s.ln.Close()
		s.ln = nil
	}
}

// reopen listens again on the port of before, if there was one.
func (s *Server) reopen() {
	s.lnMu.Lock()
	defer s.lnMu.Unlock()
	if s.addr == "" || s.ln != nil {
		return
	}
	if err := s.listenLocked(s.addr); err != nil {
		s.fail(err)
	}
}

func (s *Server) fail(err error) {
	if s.t == nil {
		panic(err)
	}
	s.t.Helper()
	s.t.Errorf("%v", err)
}

// accept makes nc a client connection.
func (s *Server) accept(nc net.Conn) error {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if s.e.closed || s.stopped || s.refuses || s.gaveUp {
		return errRefused
	}
	c := newConn(s, nc)
	s.e.connSeq++
	c.seq = s.e.connSeq
	c.since = s.e.nowLocked()
	c.setView(s.view)
	c.apply(s.faults)
	if s.paused {
		c.inHold |= holdPause
		c.outHold |= holdPause
	}
	s.conns[c] = struct{}{}
	c.limitHandshake()
	s.e.goLocked(c.read)
	s.e.goLocked(c.write)
	return nil
}

// connections lists the server's connections, oldest first. The caller holds e.mu.
func (s *Server) connections() []*conn {
	return slices.SortedFunc(maps.Keys(s.conns), func(a, b *conn) int { return cmp.Compare(a.seq, b.seq) })
}

// Advance moves the server's time by d, and ends the sessions whose time is over
// before it returns. It panics without [WithManualClock]: real time, and that of
// a synctest bubble, pass by themselves.
func (s *Server) Advance(d time.Duration) {
	if s.e.manual == nil {
		panic("zktest: Advance needs WithManualClock")
	}
	s.e.manual.advance(d)
}
