package zktest

import (
	"errors"
	"fmt"
	"net"
	"time"
)

// acceptPause is the pause after an error of Accept.
const acceptPause = 5 * time.Millisecond

// Addr returns the TCP address for clients that cannot use [Server.Dialer]. It is on the
// loopback interface unless [WithAddr] sets another address. The first call opens the port,
// and in an ensemble the ports of all servers. A test in a synctest bubble must not call
// Addr, because bubbles lack a real network. If the server cannot listen, Addr fails the
// test, or panics outside of a test; [Server.Listen] returns the error.
func (s *Server) Addr() string {
	addr, err := s.Listen()
	if err != nil {
		s.failTest(err)
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
		x.adjustListener() // close the listener again if the server is stopped or refuses connections
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
	s.setBoundAddr(s.addr)
	s.e.goLocked(func() { s.acceptFrom(ln) })
	return nil
}

// acceptFrom accepts connections until the listener is closed. After any other error, for instance
// if too many files are open, it continues after a pause.
func (s *Server) acceptFrom(ln net.Listener) {
	for {
		nc, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(acceptPause)
			continue
		}
		if err := s.accept(nc); err != nil {
			nc.Close()
		}
	}
}

func (s *Server) stopListening() {
	s.lnMu.Lock()
	defer s.lnMu.Unlock()
	if s.ln != nil {
		s.ln.Close()
		s.ln = nil
	}
}

// reopen listens on the previous port again, if the server has listened on one.
func (s *Server) reopen() {
	s.lnMu.Lock()
	defer s.lnMu.Unlock()
	if s.addr == "" || s.ln != nil {
		return
	}
	if err := s.listenLocked(s.addr); err != nil {
		s.failTest(err)
	}
}

func (s *Server) failTest(err error) {
	if s.t == nil {
		panic(err)
	}
	s.t.Helper()
	s.t.Errorf("%v", err)
}

// adjustListener closes the listener if the server is stopped or refuses connections, and opens it again
// otherwise.
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

func (s *Server) tcpAddr() string {
	s.lnMu.Lock()
	defer s.lnMu.Unlock()
	return s.addr
}
