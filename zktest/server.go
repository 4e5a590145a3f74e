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

// TB contains the methods of [testing.TB] that [Start] and [Cluster] use.
type TB interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Server is one ZooKeeper server. Its methods are safe for concurrent use and may be
// called from hooks. After [Server.Close] methods that change the server do nothing, and
// the others return the final state.
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

// Start starts a server and closes it when the test ends. If an option is invalid, it
// fails the test. A test that uses a synctest bubble must call Start inside the bubble.
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

// New starts a server outside of a test. The caller must close it.
func New(opts ...Option) (*Server, error) {
	e, err := newEnsemble(1, opts)
	if err != nil {
		return nil, err
	}
	return e.servers[0], nil
}

// Close closes the clients that [Server.Connect] has made, closes all other connections,
// and waits until all goroutines of the server have ended, including hooks that are
// running. It closes all servers of an ensemble. Further calls do nothing.
func (s *Server) Close() { s.e.close() }

// Name returns the server's name for [Server.Dialer], for example "zk1:2181". It cannot
// be resolved by DNS.
func (s *Server) Name() string { return fmt.Sprintf("zk%d:2181", s.id+1) }

// ID returns the number of the server in its ensemble, counted from 0.
func (s *Server) ID() int { return s.id }

// Addr returns the TCP address for clients that cannot use [Server.Dialer]. It is on the
// loopback interface unless [WithAddr] sets another one. The first call opens the port,
// and in an ensemble the ports of all servers. A test in a synctest bubble must not call
// Addr, because bubbles lack a real network. If the server cannot listen, Addr fails the
// test, or panics outside of a test; [Server.Listen] returns the error.
func (s *Server) Addr() string {
	addr, err := s.Listen()
	if err != nil {
		s.fail(err)
	}
	return addr
}

// Listen opens the TCP port unless it is open, and returns its address. In an ensemble it
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

// Advance moves the server's clock forward by d, and expires the sessions that are due
// before it returns. It panics without [WithManualClock], because otherwise the server
// uses real time or the fake time of a synctest bubble.
func (s *Server) Advance(d time.Duration) {
	if s.e.manual == nil {
		panic("zktest: Advance: the server was not started with WithManualClock")
	}
	s.e.manual.advance(d)
}
